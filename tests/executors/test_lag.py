"""Old experience: what the learner is told of who acted is true."""

from __future__ import annotations

import numpy as np
import pytest

from starling.core.errors import ConfigError
from tests.executors.programs import Watcher, program_of, trained


def test_the_ratio_of_learner_to_behaviour_is_one_on_average_however_old_the_experience():
    """E_μ[π/μ] = 1 for any π and μ, so a wrong or mislaid μ shows."""
    watcher = Watcher()
    slow = {"seed": 0, "work": {"actor": 0.1, "learner": 1.0}}
    settings = {"envs": 32, "learning_rate": 0.01}
    trained("impala", "actor_learner", "simulated", watcher, steps=60_000, settings=settings, queue=8, simulation=slow)
    told = [values for _, steps, values in watcher.reports if steps >= 0 and "lag_mean" in values]
    assert np.mean([values["lag_mean"] for values in told]) > 5
    ratios = np.array([values["impala.rho"] for values in told])
    assert ratios.std() > 0.002
    np.testing.assert_allclose(ratios.mean(), 1.0, atol=0.01)


def test_lag_with_replay_is_that_of_what_was_drawn_and_not_of_what_came_in_last():
    """Nearly all of a table that is never full is older than the newest chunk, and the older the longer it learns."""
    watcher = Watcher()
    settings = {"train_every": 2, "learning_starts": 32, "capacity": 4096}
    trained("dqn", "apex", "inline", watcher, steps=1_500, settings=settings, actors=1)
    lags = [values["lag_mean"] for _, steps, values in watcher.reports if steps >= 0 and "lag_mean" in values]
    assert lags[-1] > 3 * lags[1] > 0, "it grows with the table"
    last = [values["updates"] for _, steps, values in watcher.reports if steps >= 0][-1]
    assert 0.2 * last < lags[-1] < 0.8 * last, "uniform draws are half as old as the run, on average"


def test_an_algorithm_that_does_not_correct_may_not_lag():
    with pytest.raises(ConfigError, match="impala does not fit the formation actor_learner"):
        program_of("impala", "actor_learner", settings={"vtrace": False}, actors=1).close()
    program_of("impala", "sync", settings={"vtrace": False}, actors=1).close()
