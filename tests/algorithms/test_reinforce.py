"""REINFORCE's loss, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.algorithms.tables import (
    GAMMA,
    actor_critic_loss,
    actor_critic_tables,
    arrays,
    assert_gradients,
    learn,
    tabular,
)

# Two episodes: of three steps, and of two; what lies behind the end of the second is no step.
EPISODES = arrays(
    {
        "obs": [[0, 2], [1, 1], [2, 0]],
        "action": [[1, 0], [0, 1], [1, 1]],
        "reward": [[1.0, 2.0], [3.0, -1.0], [4.0, 50.0]],
        "terminated": [[False, False], [False, False], [True, False]],
        "truncated": [[False, False], [False, True], [False, False]],
        "mask": [[1.0, 1.0], [1.0, 1.0], [1.0, 0.0]],
    }
)
ORDER = [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1)]
RETURNS = np.array([1 + 0.5 * (3 + 0.5 * 4), 3 + 0.5 * 4, 4, 2 - 0.5 * 1, -1])
ADVANTAGES = RETURNS - [1, 2, 4, 4, 2]  # less the values of the states


@pytest.mark.parametrize(
    ("standardise", "advantages"), [(False, ADVANTAGES), (True, (ADVANTAGES - ADVANTAGES.mean()) / ADVANTAGES.std())]
)
def test_what_an_action_led_to_beyond_the_baseline_weighs_its_likelihood(standardise, advantages):
    reinforce = tabular(
        "reinforce", gamma=GAMMA, standardise=standardise, value_weight=0.25, entropy_weight=0.5, envs=2, episodes=2
    )
    params = actor_critic_tables(reinforce)

    def by_hand(p):
        return actor_critic_loss(p, EPISODES, advantages, RETURNS, 0.25, 0.5, ORDER)

    found = learn(reinforce, params, EPISODES)
    assert found.loss == pytest.approx(by_hand(params), rel=1e-6)
    assert_gradients(found, by_hand, params)
