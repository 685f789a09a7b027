"""IMPALA's loss, by hand: V-trace of a rollout that another policy acted in."""

from __future__ import annotations

import numpy as np
import pytest

from tests.algorithms.tables import (
    ADVANTAGES,
    GAMMA,
    RETURNS,
    actor_critic_loss,
    actor_critic_tables,
    assert_gradients,
    learn,
    rollout,
    tabular,
)

RATIOS = [2, 0.5, 2, 4, 0.5]  # π / μ of the steps that count
CLIPS = {"clip_rho": 1.5, "clip_c": 1.25, "clip_pg_rho": 3.0}
# δ = 1 + ½·2 − 1, 3 − 2, ½·1 − 4, ½·6 − 4, 1 + ½·2 − 1; ρ̄ = 1.5, 0.5, 1.5, 1.5, 0.5; c̄ of the first step is 1.25.
LAST = [2 + 0.5 * 1, 4 + 1.5 * -3.5, 4 + 1.5 * -1, 1 + 0.5 * 1]
LAST_ADVANTAGES = [0.5 * (3 - 2), 2 * (0.5 - 4), 3 * (3 - 4), 0.5 * (2 - 1)]


@pytest.mark.parametrize(
    ("settings", "advantages", "targets"),
    [
        # vs_0 = v_0 + ρ̄·δ + γ·c̄·(vs_1 − v_1), and 2 · (r + γ·vs_1 − v_0) for the policy.
        (CLIPS, [2 * (1 + 0.5 * 2.5 - 1), *LAST_ADVANTAGES], [1 + 1.5 * 1 + 0.5 * 1.25 * 0.5, *LAST]),
        # With λ = ½ half as much comes back from vs_1.
        (
            {**CLIPS, "vtrace_lambda": 0.5},
            [2 * (1 + 0.5 * 2.25 - 1), *LAST_ADVANTAGES],
            [1 + 1.5 * 1 + 0.25 * 1.25 * 0.5, *LAST],
        ),
        ({"vtrace": False}, ADVANTAGES, RETURNS),
    ],
)
def test_ratios_are_clipped_where_each_of_them_counts(settings, advantages, targets):
    impala = tabular("impala", gamma=GAMMA, value_weight=0.25, entropy_weight=0.5, **settings)
    params, batch = actor_critic_tables(impala), rollout(RATIOS)

    def by_hand(p):
        return actor_critic_loss(p, batch, np.array(advantages), np.array(targets), 0.25, 0.5)

    found = learn(impala, params, batch)
    assert found.loss == pytest.approx(by_hand(params), rel=1e-6)
    assert_gradients(found, by_hand, params)


def test_of_its_own_rollouts_it_learns_n_step_returns():
    impala = tabular("impala", gamma=GAMMA, value_weight=0.25, entropy_weight=0.5)
    params, batch = actor_critic_tables(impala), rollout()
    expected = actor_critic_loss(params, batch, ADVANTAGES, RETURNS, 0.25, 0.5)
    assert learn(impala, params, batch).loss == pytest.approx(expected, rel=1e-6)
