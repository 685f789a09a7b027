"""The same seed gives the same parameters, again and again: a data race would show as another hash."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager

import pytest

from starling.core.machine import processors
from starling.experiments.compatibility import compatibility
from tests.executors.programs import SMALL, hashed

LOCKSTEP = ("sync", "allreduce", "central_inference")
REPLAYING = ("dqn", "r2d2", "sac")
REPEATABLE = [(algo, name) for algo in SMALL for name in LOCKSTEP if compatibility()[algo][name] is None]

# Several rounds fall due at once and nobody waits between them: three updates and more are on their way together.
ROUNDS = {"train_every": 1, "updates": 1, "envs": 8, "learning_starts": 32, "batch_size": 64, "capacity": 256}
WIDE = {"hidden": [256, 256]}  # long enough that a draw can overtake an update
CASES = [
    ("dqn", "sync", {"actors": 2}, {**ROUNDS, **WIDE, "alpha": 0.0}),
    ("sac", "sync", {"actors": 2}, {**ROUNDS, **WIDE}),
    ("sac", "single", {}, {**ROUNDS, **WIDE}),
    ("dqn", "central_inference", {"actors": 2, "max_lag": 0}, {**ROUNDS, **WIDE, "alpha": 0.0}),
]


@pytest.mark.parametrize(("algo", "formation", "options", "settings"), CASES)
def test_many_updates_at_once_on_jax_give_one_hash(algo, formation, options, settings):
    found = {
        hashed(algo, formation, "inline", backend="jax", steps=240, settings=settings, **options) for _ in range(4)
    }
    assert len(found) == 1


def repeated(algo, formation, backend, times, executor="inline"):
    options = {"max_lag": 0} if formation == "central_inference" else {}
    settings = {"learning_starts": 32} if algo in REPLAYING else {}
    return {
        hashed(algo, formation, executor, backend=backend, steps=96, settings=settings, **options) for _ in range(times)
    }


@pytest.mark.parametrize(("algo", "backend"), [("ppo", "jax"), ("dqn", "torch")])
@pytest.mark.parametrize("formation", LOCKSTEP)
def test_formations_in_lockstep_repeat(algo, formation, backend):
    assert len(repeated(algo, formation, backend, 4)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize(("algo", "formation"), REPEATABLE)
def test_they_repeat_twenty_times(algo, formation, backend):
    assert len(repeated(algo, formation, backend, 20)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize(("algo", "formation"), REPEATABLE)
def test_they_repeat_on_processes_of_a_loaded_machine(algo, formation, backend):
    with loaded():
        assert repeated(algo, formation, backend, 3, "processes") == repeated(algo, formation, backend, 1)


@contextmanager
def loaded():
    """As many busy processes as there are processors."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processors())]
    try:
        yield
    finally:
        for each in spinning:
            each.kill()
            each.wait()
