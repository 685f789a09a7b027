"""Episodes of a run's policy as a data set, for algorithms that learn from one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from starling.core.params import Params, with_scopes
from starling.core.trees import Tree, map_leaves
from starling.data import EpisodeWriter, RecordedEpisode
from starling.envs import Envs
from starling.roles.policy import Policy, memory_where

__all__ = ["record_episodes"]


def record_episodes(
    policy: Policy, envs: Envs, episodes: int, directory: str | Path, report: Callable[[int], None] = lambda done: None
) -> list[float]:
    """Play greedy episodes and write them to a data set; returns what each earned.

    Each environment records its own share from its beginning: taking whichever end first would favour short episodes.
    """
    share = [episodes // envs.count + (i < episodes % envs.count) for i in range(envs.count)]
    running: list[list[tuple[Any, ...]]] = [[] for _ in range(envs.count)]
    returns: list[float] = []
    obs, memory, remembers = envs.reset(), policy.no_memory(envs.count), bool(policy.algorithm.memory.spaces)
    with EpisodeWriter(directory, policy.algorithm.observation_space, policy.algorithm.action_space) as writer:
        while any(share):
            choice = policy.greedy(obs, memory)
            action = np.asarray(choice.action)
            step = envs.step(policy.algorithm.to_env(action))
            ended = step.terminated | step.truncated
            for i in np.flatnonzero(np.array(share) * step.valid).tolist():
                following = step.final_obs if ended[i] and step.final_obs is not None else step.obs
                ends = (float(step.reward[i]), bool(step.terminated[i]), bool(step.truncated[i]))
                running[i].append((_row(obs, i), action[i], *ends, _row(following, i)))
                if ended[i]:
                    writer.write(_episode(running[i], policy))
                    returns.append(sum(each[2] for each in running[i]))
                    running[i], share[i] = [], share[i] - 1
                    report(len(returns))
            obs = step.obs
            if remembers:
                memory = memory_where(with_scopes(choice.memory, Params), ended | ~step.valid)
    return returns


def _row(tree: Tree, i: int) -> Tree:
    return map_leaves(lambda x: np.array(x[i]), tree)


def _episode(steps: list[tuple[Any, ...]], policy: Policy) -> RecordedEpisode:
    seen = [step[0] for step in steps] + [steps[-1][5]]
    dtype = dict(policy.algorithm.action_space.items())[""].numpy_dtype
    return RecordedEpisode(
        map_leaves(lambda *x: np.stack(x), *seen),
        np.stack([step[1] for step in steps]).astype(dtype),
        np.array([step[2] for step in steps]),
        np.array([step[3] for step in steps]),
        np.array([step[4] for step in steps]),
    )
