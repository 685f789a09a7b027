"""A2C's loss, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.algorithms.tables import (
    ADVANTAGES,
    GAMMA,
    RETURNS,
    VALUES,
    actor_critic_loss,
    actor_critic_tables,
    assert_gradients,
    learn,
    rollout,
    tabular,
)

# With λ = ½ the first step's advantage is δ_0 + γ·λ·δ_1 = (1 + ½·2 − 1) + ¼·(3 − 2); the others are single steps.
HALF = np.array([1.25, *ADVANTAGES[1:]])


@pytest.mark.parametrize(
    ("gae_lambda", "advantages", "returns"),
    [(1.0, ADVANTAGES, RETURNS), (0.5, HALF, HALF + VALUES[[0, 1, 2, 2, 0]])],
)
def test_advantages_weigh_the_policy_and_returns_are_what_values_near(gae_lambda, advantages, returns):
    a2c = tabular("a2c", gamma=GAMMA, gae_lambda=gae_lambda, value_weight=0.25, entropy_weight=0.5)
    params, batch = actor_critic_tables(a2c), rollout()

    def by_hand(p):
        return actor_critic_loss(p, batch, advantages, returns, value_weight=0.25, entropy_weight=0.5)

    found = learn(a2c, params, batch)
    assert found.loss == pytest.approx(by_hand(params), rel=1e-6)
    assert_gradients(found, by_hand, params)
