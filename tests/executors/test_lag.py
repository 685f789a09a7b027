"""Old experience: what the learner is told of who acted is true."""

from __future__ import annotations

import numpy as np

from tests.executors.programs import Watcher, trained


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
