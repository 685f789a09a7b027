"""Nothing is compiled twice: the second update of a run finds what the first one left."""

from __future__ import annotations

import jax
import pytest

from starling.algorithms import ALGORITHMS
from starling.algorithms.compiled.learner import Learner
from tests.algorithms.cases import CASES, FITS, Case, batch_for, built

PLAIN = [Case(algo, "vector", FITS[algo][0]) for algo in ALGORITHMS]
CASES = PLAIN + [case for case in CASES if {"memory", "normalise_rewards"} & dict(case.settings).keys()]


@pytest.fixture
def compilations():
    counted = []

    def listener(event, seconds, **_):
        if event.endswith("backend_compile_duration"):
            counted.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(listener)
    yield counted
    jax.monitoring.unregister_event_duration_listener(listener)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_updates_after_the_first_compile_nothing(case, compilations):
    learner = Learner(built(case, "jax"), seed=1)
    batch, _ = batch_for(case, 0)

    def learn():
        learner.update(batch, 0.5)
        learner.weights()
        learner.acting_weights()

    learn()
    assert compilations, "a first update that compiles nothing measures nothing"
    state = learner.state()
    compilations.clear()
    learn()
    learn()
    assert not compilations
    learner.restore(state)
    compilations.clear()
    learn()
    assert not compilations
