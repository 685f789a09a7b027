"""R2D2's loss, by hand, one sequence after the other, with a target network that disagrees with the online one."""

from __future__ import annotations

import numpy as np
import pytest

from starling.core.spaces import Bool, Dict
from tests.algorithms.tables import STATES, arrays, assert_gradients, begun, drawn, gru, learn, loss_of, tabular

BURN_IN, LENGTH, N_STEP, GAMMA, ETA = 2, 4, 2, 0.5, 0.75
# Three sequences of 2 + 4 steps: one goes on, one terminates and one is cut with its fifth step; the last is padding.
BATCH = arrays(
    {
        "obs": [[0, 1, 2, 1, 0, 2, 1], [2, 2, 1, 0, 1, 1, 0], [1, 0, 0, 2, 1, 2, 0]],
        "action": [[1, 0, 0, 1, 1, 0], [0, 1, 1, 0, 1, 0], [1, 1, 0, 1, 0, 0]],
        "reward": [[9.0, 9.0, 1.0, -2.0, 0.5, 3.0], [9.0, 9.0, 2.0, 0.0, -1.0, 0.0], [9.0, 9.0, 1.5, 1.0, -3.0, 0.0]],
        "terminated": [[False] * 6, [False] * 4 + [True, False], [False] * 6],
        "truncated": [[False] * 6, [False] * 6, [False] * 4 + [True, False]],
        "mask": [[True] * 6, [True] * 5 + [False], [True] * 5 + [False]],
        "weight": [1.0, 0.5, 2.0],
    }
)
BATCH["memory"] = {"h": np.float32([[0.5, -0.5], [-0.25, 0.75], [1.0, 0.0]])}
SCALES = {  # h and its inverse, as the paper writes them with ε = 0.001
    False: (lambda x: x, lambda x: x),
    True: (
        lambda x: np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + 1e-3 * x,
        lambda x: np.sign(x) * (((np.sqrt(1 + 4e-3 * (abs(x) + 1.001)) - 1) / 2e-3) ** 2 - 1),
    ),
}


EVERYTHING = np.ones((3, 2), bool)  # possible in each state


def r2d2(**settings):
    numbers = {"burn_in": BURN_IN, "length": LENGTH, "n_step": N_STEP, "gamma": GAMMA, "eta": ETA, "overlap": 2}
    return tabular("r2d2", memory="gru", memory_size=2, **numbers, **settings)


def q_along(p, row, burnt_in_by, batch):
    """Values of all actions behind the burn-in; another network may have brought the memory up to date."""
    h = batch["memory"]["h"][row].astype(float)
    for state in batch["obs"][row, :BURN_IN]:
        h = gru(burnt_in_by["q"]["core"], state, h)
    found = []
    for state in batch["obs"][row, BURN_IN:]:
        h = gru(p["q"]["core"], state, h)
        head = p["q"]["head"]
        advantage = h @ head["w_advantage"] + head["b_advantage"]
        found.append(h @ head["w_value"] + head["b_value"] + advantage - advantage.mean())
    return found


def errors(p, fixed, targets, row, rescale=True, batch=BATCH, possible=EVERYTHING):
    """h(n-step return) − Q of the valid steps behind the burn-in."""
    scaled, unscaled = SCALES[rescale]
    q, q_target = q_along(p, row, fixed, batch), q_along(targets, row, targets, batch)
    best = [np.argmax(np.where(possible[s], q, -np.inf)) for s, q in zip(batch["obs"][row, BURN_IN:], q)]
    found = []
    for t in range(LENGTH):
        if not batch["mask"][row, BURN_IN + t]:
            break
        goal, discount = 0.0, 1.0
        for k in range(t, min(t + N_STEP, LENGTH)):
            goal += discount * batch["reward"][row, BURN_IN + k]
            discount *= GAMMA
            if batch["terminated"][row, BURN_IN + k]:
                discount = 0.0
            if batch["terminated"][row, BURN_IN + k] or batch["truncated"][row, BURN_IN + k]:
                break
        goal += discount * unscaled(q_target[k + 1][best[k + 1]])
        found.append(scaled(goal) - q[t][batch["action"][row, BURN_IN + t]])
    return np.array(found)


def by_hand(p, fixed, targets, **given):
    """½ of the mean squared error of a sequence, the mean by weight."""
    squares = [0.5 * np.mean(errors(p, fixed, targets, row, **given) ** 2) for row in range(3)]
    return np.mean(BATCH["weight"] * squares)


@pytest.mark.parametrize("rescale", [True, False])
def test_errors_behind_the_burn_in_are_squared_and_no_gradient_flows_into_it(rescale):
    algorithm = r2d2(rescale=rescale)
    params, targets = drawn(algorithm, 0), drawn(algorithm, 1)
    found = learn(algorithm, params, BATCH, targets=targets)
    assert found.loss == pytest.approx(by_hand(params, params, targets, rescale=rescale), rel=1e-5)
    assert_gradients(found, lambda p: by_hand(p, params, targets, rescale=rescale), params)


def test_the_networks_disagree_on_the_best_action():
    params, targets = drawn(r2d2(), 0), drawn(r2d2(), 1)
    best = [[np.argmax(q) for row in range(3) for q in q_along(p, row, p, BATCH)] for p in (params, targets)]
    assert best[0] != best[1]


def test_what_was_done_and_earned_in_the_burn_in_is_not_learned_from_but_what_was_seen_is_remembered():
    algorithm = r2d2()
    params, targets = drawn(algorithm, 0), drawn(algorithm, 1)

    def loss_with(name, value):
        changed = {**BATCH, name: BATCH[name].copy()}
        changed[name][:, :BURN_IN] = value
        return loss_of(algorithm, params, changed, targets=targets)

    before = loss_of(algorithm, params, BATCH, targets=targets)
    assert loss_with("reward", -5.0) == loss_with("action", 0) == before
    assert loss_with("obs", 0) != pytest.approx(before, rel=1e-3)


def test_a_sequence_goes_on_from_the_memory_that_was_stored_with_it():
    algorithm = r2d2()
    params, targets = drawn(algorithm, 0), drawn(algorithm, 1)
    forgotten = {**BATCH, "memory": {"h": np.zeros((3, 2), np.float32)}}
    losses = [loss_of(algorithm, params, batch, targets=targets) for batch in (BATCH, forgotten)]
    assert losses[0] != pytest.approx(losses[1], rel=1e-3)
    assert losses[1] == pytest.approx(by_hand(params, params, targets, batch=forgotten), rel=1e-5)


def test_impossible_actions_are_not_chosen():
    algorithm = r2d2(obs=Dict(observation=STATES, action_mask=Bool((2,))))
    params, targets = drawn(algorithm, 0), drawn(algorithm, 1)
    possible = np.array([[True, False], [False, True], [True, True]])
    masked = {**BATCH, "obs": {"observation": BATCH["obs"], "action_mask": possible[BATCH["obs"]]}}
    found = loss_of(algorithm, params, masked, targets=targets)
    assert found == pytest.approx(by_hand(params, params, targets, possible=possible), rel=1e-5)
    assert found != pytest.approx(by_hand(params, params, targets), rel=1e-3)


@pytest.mark.parametrize("alpha", [0.6, 0.0])
def test_priorities_mix_the_largest_and_the_mean_error_of_a_sequence_where_the_plan_prioritizes(alpha):
    algorithm = r2d2(alpha=alpha)
    params, targets = drawn(algorithm, 0), drawn(algorithm, 1)
    found = learn(algorithm, params, BATCH, targets=targets).learned.priorities
    if not alpha:
        assert found is None
        return
    sizes = [np.abs(errors(params, params, targets, row)) for row in range(3)]
    np.testing.assert_allclose(found, [ETA * x.max() + (1 - ETA) * x.mean() for x in sizes], rtol=1e-5)


def test_the_target_network_is_copied_once_in_a_period_and_no_gradient_moves_it():
    algorithm = r2d2(target_period=2)
    params, targets = drawn(algorithm, 0), drawn(algorithm, 1)
    first, _ = algorithm.update(begun(algorithm, params, targets), BATCH, {})
    second, _ = algorithm.update(first, BATCH, {})
    np.testing.assert_array_equal(first["targets"]["q"]["core"]["u"], targets["q"]["core"]["u"])
    np.testing.assert_array_equal(second["targets"]["q"]["core"]["u"], second["params"]["q"]["core"]["u"])
