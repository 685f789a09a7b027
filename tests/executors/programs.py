"""Small runs in every formation."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from starling.executors import get_executor
from starling.experiments.config import resolve
from starling.experiments.program import Program
from starling.records.hashes import parameter_hash
from tests.executors.watchers import Watcher

__all__ = ["ENVS", "SMALL", "Watcher", "hashed", "program_of", "trained"]

SMALL: dict[str, dict[str, Any]] = {
    "a2c": {"envs": 4, "rollout": 8, "hidden": [8]},
    "ppo": {"envs": 4, "rollout": 16, "minibatch": 32, "epochs": 2, "vtrace": True, "hidden": [8]},
    "impala": {"envs": 4, "rollout": 8, "hidden": [8]},
    "es": {"population": 8, "hidden": [8]},
    "r2d2": {
        "envs": 2,
        "length": 6,
        "burn_in": 2,
        "overlap": 2,
        "batch_size": 4,
        "learning_starts": 64,
        "train_every": 8,
        "capacity": 64,
        "hidden": [8],
        "memory_size": 4,
    },
    "reinforce": {"envs": 4, "episodes": 4, "episode_length": 500, "hidden": [8]},
    "dqn": {"envs": 2, "learning_starts": 64, "batch_size": 16, "capacity": 512, "alpha": 0.6, "hidden": [8]},
    "sac": {"envs": 2, "learning_starts": 64, "batch_size": 16, "capacity": 512, "hidden": [8], "train_every": 8},
}
ENVS = {"sac": "Pendulum-v1"}


def program_of(algo, formation, directory=None, steps=400, settings=None, construct=None, **options):
    """The program of a small run; ``settings`` are the algorithm's, beside the small ones; ``construct`` makes the
    environments where their name is not enough."""
    given = {"algo": algo, "env": ENVS.get(algo, "CartPole-v1"), "preset": "none", "formation": formation}
    own = {**SMALL.get(algo, {}), **(settings or {})}
    if "simulation" in options:
        given["executor"] = "simulated"
    return Program(resolve({**given, "steps": steps, "log_every": 100, algo: own, **options}), construct, directory)


def trained(algo, formation, executor, watcher=None, **options):
    """The weights that a small run comes to."""
    with tempfile.TemporaryDirectory() as directory:
        program = program_of(algo, formation, Path(directory), **options)
        try:
            results = get_executor(executor)(program, watcher or Watcher(), False)
        finally:
            program.close()
        return program.weights(results)


def hashed(*args, **kwargs):
    return parameter_hash(trained(*args, **kwargs))
