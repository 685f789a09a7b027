"""Behaviour cloning's loss, by hand: how unlikely the policy finds what was done."""

from __future__ import annotations

import numpy as np
import pytest

from starling.core.spaces import Bool, Float, Int
from tests.algorithms.tables import CHOICE, arrays, assert_gradients, drawn, learn, log_probs, tables, tabular

STATES = [0, 2, 1, 2]


def outputs(p):
    return p["policy"]["head"]["w"][STATES] + p["policy"]["head"]["b"]


def of_one_choice(p, actions):
    return log_probs(p, STATES)[np.arange(4), actions]


def of_several_choices(p, actions):
    """Three options, then two."""
    parts = [np.exp(part) / np.exp(part).sum(axis=-1, keepdims=True) for part in np.split(outputs(p), [3], axis=-1)]
    return sum(np.log(part[np.arange(4), actions[:, k]]) for k, part in enumerate(parts))


def of_switches(p, actions):
    on = 1 / (1 + np.exp(-outputs(p)))
    return np.log(np.where(actions, on, 1 - on)).sum(axis=-1)


def of_a_normal(p, actions):
    deviation = np.exp(p["policy"]["head"]["log_std"])
    density = np.exp(-0.5 * ((actions - outputs(p)) / deviation) ** 2) / (deviation * np.sqrt(2 * np.pi))
    return np.log(density).sum(axis=-1)


@pytest.mark.parametrize(
    ("action", "actions", "log_prob"),
    [
        (CHOICE, [1, 0, 1, 1], of_one_choice),
        (Int((2,), high=np.array([3, 2])), [[2, 0], [0, 1], [1, 1], [2, 1]], of_several_choices),
        (Bool((2,)), [[True, False], [False, False], [True, True], [False, True]], of_switches),
        (Float((2,), -2.0, 3.0), [[0.5, -1.0], [2.0, 0.25], [-1.5, 0.0], [1.0, 1.0]], of_a_normal),
    ],
    ids=["one choice", "several choices", "switches", "continuous"],
)
def test_the_loss_is_the_mean_negative_log_likelihood_of_the_actions(action, actions, log_prob):
    bc = tabular("bc", action)
    batch = arrays({"obs": STATES, "action": actions, "reward": [0.0] * 4})
    params = drawn(bc, 0)

    def by_hand(p):
        return -np.mean(log_prob(p, batch["action"]))

    found = learn(bc, params, batch)
    assert found.loss == pytest.approx(by_hand(params), rel=1e-6)
    assert_gradients(found, by_hand, params)


def test_a_loss_in_numbers():
    bc = tabular("bc")
    params = tables(bc, {"policy.head.w": np.log([[0.25, 0.75], [0.5, 0.5], [0.8, 0.2]])})
    found = learn(bc, params, arrays({"obs": STATES, "action": [1, 0, 1, 1], "reward": [0.0] * 4}))
    assert found.loss == pytest.approx(-np.log(0.75 * 0.8 * 0.5 * 0.2) / 4)
    # The slope of −log π(a) by the logits is π − 1 at the action and π at the other.
    expected = np.array([[0.25, -0.25], [0.5, -0.5], [-0.2 + 0.8, 0.2 - 0.8]]) / 4
    np.testing.assert_allclose(found.gradients["policy.head.w"], expected, atol=1e-6)
