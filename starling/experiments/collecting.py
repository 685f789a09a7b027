"""Episodes of a run's policy as a data set, for algorithms that learn from one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from starling.algorithms.compiled.evaluation import greedy_steps, shares
from starling.algorithms.compiled.policy import Policy
from starling.core.trees import Tree, map_leaves
from starling.data import EpisodeWriter, RecordedEpisode
from starling.envs import EnvLike, Envs, make
from starling.experiments.trained import trained
from starling.records.progress import Progress

__all__ = ["collect"]


def collect(
    run: str | Path, episodes: int, out: str | Path, seed: int | None = None, env: EnvLike | None = None,
    quiet: bool = True,
) -> list[float]:  # fmt: skip
    """Write greedy episodes of a run's policy to a data set at ``out``, to learn from; returns what each earned."""
    with trained(run, episodes, env) as (program, policy):
        options = program.run.options
        chosen = options.seed + 2_000_000 if seed is None else seed
        with (
            make(program.env, min(episodes, 8), chosen, **options.env_options) as envs,
            Progress(episodes, f"recording {options.env}", unit="episodes", quiet=quiet) as bar,
        ):
            return _record(policy, envs, episodes, out, bar.update)


def _record(
    policy: Policy, envs: Envs, episodes: int, directory: str | Path, report: Callable[[int], None]
) -> list[float]:
    share, returns = shares(episodes, envs.count), []
    (dtype,) = (leaf.numpy_dtype for _, leaf in policy.algorithm.action_space.items())
    running: list[list[Tree]] = [[] for _ in range(envs.count)]
    with EpisodeWriter(directory, policy.algorithm.observation_space, policy.algorithm.action_space) as writer:
        for obs, action, step in greedy_steps(policy, envs):
            ended = step.terminated | step.truncated
            following = step.obs if step.final_obs is None else step.final_obs
            for i in np.flatnonzero(np.array(share) * step.valid).tolist():
                happened = {"reward": step.reward, "terminated": step.terminated, "truncated": step.truncated}
                running[i].append(_row({"obs": obs, "action": action, **happened}, i))
                if ended[i]:
                    writer.write(RecordedEpisode.of(running[i], _row(following, i), dtype))
                    returns.append(sum(float(each["reward"]) for each in running[i]))
                    running[i], share[i] = [], share[i] - 1
                    report(len(returns))
            if not any(share):
                return returns
    raise AssertionError("greedy steps have no end")


def _row(tree: Tree, i: int) -> Tree:
    return map_leaves(lambda x: np.array(x[i]), tree)
