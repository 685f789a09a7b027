"""``starling.train`` and its companions: what the command line does, from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starling.envs import EnvLike
from starling.envs.constructing import name_of
from starling.experiments.config import resolve
from starling.experiments.evaluation import Evaluation
from starling.experiments.running import Result, start
from starling.experiments.running import resume as resume_run
from starling.experiments.trained import evaluate_run

__all__ = ["collect", "evaluate", "resume", "train"]


def train(
    algo: str | None = None, env: EnvLike | None = None, config: str | Path | None = None, **settings: Any
) -> Result:
    """Train ``algo`` on ``env`` and return the run's summary and directory.

        result = starling.train("ppo", "CartPole-v1", steps=50_000, seed=1, ppo={"learning_rate": 1e-3})
        print(result.final_return, result.directory)

    ``env`` is a Gymnasium id, a constructor or a VectorEnv. ``config`` names a YAML file; ``settings`` are those of
    the command line, the algorithm's own as a mapping under its name. What neither says is ppo on CartPole-v1.
    """
    given = {"algo": algo, "env": None if env is None else name_of(env)}
    run = resolve({key: value for key, value in given.items() if value is not None}, settings, config=config)
    return start(run, None if isinstance(env, str) else env)


def resume(run: str | Path, env: EnvLike | None = None, quiet: bool = False) -> Result:
    """Go on with an interrupted run; ``env`` again where it was given as a constructor."""
    return resume_run(run, env, quiet=quiet)


def evaluate(run: str | Path, episodes: int = 100, seed: int | None = None, env: EnvLike | None = None) -> Evaluation:
    """Play greedy episodes with a run's policy."""
    return evaluate_run(run, episodes, seed, env)


def collect(run: str | Path, episodes: int, out: str | Path, seed: int | None = None) -> list[float]:
    """Write greedy episodes of a run's policy to a data set at ``out``, for ``bc`` or as demonstrations."""
    from starling.experiments.collecting import collect_run

    return collect_run(run, episodes, out, seed)
