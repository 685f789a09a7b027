"""DQN's loss, by hand, with a target network that disagrees with the online one."""

from __future__ import annotations

import numpy as np
import pytest

from starling.core.spaces import Bool, Dict
from tests.algorithms.tables import STATES, arrays, assert_gradients, begun, learn, tables, tabular

ONLINE = np.array([[1.0, 2.0], [3.0, 5.0], [0.0, 4.0]])
TARGET = np.array([[6.0, 8.0], [10.0, 7.0], [9.0, 9.0]])
BATCH = arrays(
    {
        "obs": [0, 2, 1],
        "action": [0, 1, 0],
        "reward": [1.0, -0.5, 3.25],
        "discount": [0.5, 0.5, 0.0],  # the last one terminated
        "next_obs": [1, 0, 2],
        "weight": [1.0, 0.4, 2.0],
    }
)
# Double: in state 1 the online network prefers action 1, which the target values at 7; in state 0 action 1, at 8.
DOUBLE = [1 + 0.5 * 7, -0.5 + 0.5 * 8, 3.25]
SINGLE = [1 + 0.5 * 10, -0.5 + 0.5 * 8, 3.25]
# As an actor sees it that has no target network: the online network values what it prefers, at 5 and 2.
ALONE = [1 + 0.5 * 5, -0.5 + 0.5 * 2, 3.25]


def q_tables(dqn, table):
    if not dqn.config.dueling:
        return tables(dqn, {"q.head.w": table})
    # v + a − mean a: whatever is the same for all advantages of a state does not count.
    mean = table.mean(axis=1, keepdims=True)
    return tables(dqn, {"q.head.w_value": mean, "q.head.w_advantage": table - mean + [[1], [2], [3]]})


def q_of(p, states):
    head = p["q"]["head"]
    if "w" in head:
        return head["w"][states] + head["b"]
    advantage = head["w_advantage"][states] + head["b_advantage"]
    return head["w_value"][states] + head["b_value"] + advantage - advantage.mean(axis=-1, keepdims=True)


def huber_loss(p, goals):
    """½δ² up to 1, |δ| − ½ beyond, by weight."""
    errors = goals - q_of(p, BATCH["obs"])[np.arange(3), BATCH["action"]]
    sizes = [0.5 * e * e if abs(e) <= 1 else abs(e) - 0.5 for e in errors]
    return np.mean(BATCH["weight"] * sizes)


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize(("double", "goals"), [(True, DOUBLE), (False, SINGLE)])
def test_the_online_network_chooses_the_next_action_and_the_target_network_values_it(double, goals, dueling):
    dqn = tabular("dqn", double=double, dueling=dueling)
    params, targets = q_tables(dqn, ONLINE), q_tables(dqn, TARGET)
    found = learn(dqn, params, BATCH, targets=targets)
    assert found.loss == pytest.approx(huber_loss(params, goals), rel=1e-6)
    assert_gradients(found, lambda p: huber_loss(p, goals), params)


def test_a_double_loss_in_numbers():
    dqn = tabular("dqn")
    found = learn(dqn, q_tables(dqn, ONLINE), BATCH, targets=q_tables(dqn, TARGET))
    # Errors 3.5, −0.5 and 0.25: Huber losses 3, 0.125 and 0.03125, by weights 1, 0.4 and 2.
    assert found.loss == pytest.approx((3 + 0.05 + 0.0625) / 3)
    expected = [[-1 / 3, 0], [-0.25 * 2 / 3, 0], [0, 0.5 * 0.4 / 3]]
    np.testing.assert_allclose(found.gradients["q.head.w"], expected, atol=1e-6)


@pytest.mark.parametrize(("alpha", "priorities"), [(0.6, [3.5, 0.5, 0.25]), (0.0, None)])
def test_priorities_are_the_sizes_of_the_errors_where_the_plan_prioritizes(alpha, priorities):
    dqn = tabular("dqn", alpha=alpha)
    found = learn(dqn, q_tables(dqn, ONLINE), BATCH, targets=q_tables(dqn, TARGET))
    if priorities is None:
        assert found.learned.priorities is None
    else:
        np.testing.assert_allclose(found.learned.priorities, priorities, rtol=1e-6)


def test_an_actor_gives_new_transitions_priorities_by_the_online_network_alone():
    dqn = tabular("dqn", alpha=0.6)
    found = dqn.priorities(q_tables(dqn, ONLINE), BATCH)
    np.testing.assert_allclose(found, np.abs(ALONE - ONLINE[[0, 2, 1], [0, 1, 0]]), rtol=1e-6)


@pytest.mark.parametrize("double", [True, False])
def test_impossible_actions_are_neither_chosen_nor_valued(double):
    dqn = tabular("dqn", double=double, obs=Dict(observation=STATES, action_mask=Bool((2,))))
    possible = np.array([[True, False], [True, False], [True, True]])  # action 0 alone, at 10 and 6
    seen = {name: {"observation": BATCH[name], "action_mask": possible[BATCH[name]]} for name in ("obs", "next_obs")}
    params, goals = q_tables(dqn, ONLINE), [1 + 0.5 * 10, -0.5 + 0.5 * 6, 3.25]
    found = learn(dqn, params, {**BATCH, **seen}, targets=q_tables(dqn, TARGET))
    assert found.loss == pytest.approx(huber_loss(params, goals), rel=1e-6)


def test_the_target_network_is_copied_once_in_a_period_and_no_gradient_moves_it():
    dqn = tabular("dqn", target_period=2)
    first, _ = dqn.update(begun(dqn, q_tables(dqn, ONLINE), q_tables(dqn, TARGET)), BATCH, {})
    second, _ = dqn.update(first, BATCH, {})
    np.testing.assert_array_equal(first["targets"]["q"]["head"]["w"], TARGET)
    np.testing.assert_array_equal(second["targets"]["q"]["head"]["w"], second["params"]["q"]["head"]["w"])
    assert np.any(second["params"]["q"]["head"]["w"] != ONLINE)
