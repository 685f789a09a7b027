"""Small runs in every formation, and a watcher that remembers."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from starling.executors import get_executor
from starling.experiments.config import resolve
from starling.experiments.program import Program
from starling.records.hashes import parameter_hash

SMALL: dict[str, dict[str, Any]] = {
    "a2c": {"envs": 4, "rollout": 8, "hidden": [8]},
    "ppo": {"envs": 4, "rollout": 16, "minibatch": 32, "epochs": 2, "vtrace": True, "hidden": [8]},
    "impala": {"envs": 4, "rollout": 8, "hidden": [8]},
    "dqn": {"envs": 2, "learning_starts": 64, "batch_size": 16, "capacity": 512, "alpha": 0.6, "hidden": [8]},
    "sac": {"envs": 2, "learning_starts": 64, "batch_size": 16, "capacity": 512, "hidden": [8], "train_every": 8},
}
ENVS = {"sac": "Pendulum-v1"}


class Watcher:
    """Hears everything, and asks to stop after ``stop_after`` steps where that is given."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.stop_after = stop_after
        self.reports: list[tuple[str, int, dict[str, Any]]] = []
        self.checkpoints: list[tuple[str, int]] = []
        self.statuses: list[dict[str, Any]] = []

    def stopping(self, role, steps):
        return self.stop_after is not None and steps >= self.stop_after

    def report(self, role, report):
        self.reports.append((str(role), report.steps, report.values))

    def checkpoint(self, role, checkpoint):
        self.checkpoints.append((str(role), checkpoint.steps))
        assert checkpoint.state()

    def status(self, status):
        self.statuses.append(status)


def program_of(algo, formation, directory=None, steps=400, settings=None, **options):
    """The program of a small run; ``settings`` are the algorithm's, beside the small ones."""
    given = {"algo": algo, "env": ENVS.get(algo, "CartPole-v1"), "preset": "none", "formation": formation}
    own = {**SMALL[algo], **(settings or {})}
    if "simulation" in options:
        given["executor"] = "simulated"
    return Program(resolve({**given, "steps": steps, "log_every": 100, algo: own, **options}), None, directory)


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
