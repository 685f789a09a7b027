"""The same seed gives the same parameters, again and again: a data race would show as another hash."""

from __future__ import annotations

import pytest

from tests.executors.programs import hashed

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


@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize("formation", ["sync", "allreduce", "central_inference"])
@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_formations_in_lockstep_repeat_twenty_times(algo, formation, backend):
    options = {"max_lag": 0} if formation == "central_inference" else {}
    settings = {"learning_starts": 32} if algo == "dqn" else {}
    runs = [
        hashed(algo, formation, "inline", backend=backend, steps=96, settings=settings, **options) for _ in range(20)
    ]
    assert len(set(runs)) == 1
