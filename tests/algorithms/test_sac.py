"""SAC's three losses, by hand, each of them moving its own parameters alone."""

from __future__ import annotations

import numpy as np
import pytest

from starling.core.params import Params
from starling.core.spaces import Float
from tests.algorithms.tables import arrays, assert_gradients, begun, drawn, learn, tabular

BATCH = arrays(
    {
        "obs": [0, 1, 2, 0],
        "action": [[0.5], [-0.25], [0.75], [-0.5]],
        "reward": [1.0, -2.0, 0.5, 3.0],
        "discount": [0.5, 0.9, 0.9, 0.0],
        "next_obs": [1, 2, 0, 2],
        "weight": [1.0, 0.5, 2.0, 1.0],
    }
)
DRAWS = arrays({"now": [[0.5], [-1.0], [0.25], [1.5]], "next": [[-0.5], [0.75], [1.25], [-0.25]]})
ENTROPY = -0.3  # the target


def sac(**settings):
    return tabular("sac", Float((1,), -2.0, 3.0), target_entropy=ENTROPY, **settings)


def sampled(p, states, noise):
    """tanh(mean + σ·noise), and its log density: that of the normal less log(1 − tanh²)."""
    head = p["policy"]["head"]
    mean, log_std = head["w"][states] + head["b"], head["w_std"][states] + head["b_std"]
    u = (mean + np.exp(log_std) * noise)[:, 0]
    normal = -0.5 * noise[:, 0] ** 2 - log_std[:, 0] - 0.5 * np.log(2 * np.pi)
    return np.tanh(u), normal - np.log(1 - np.tanh(u) ** 2)


def critics(p, states, actions):
    """The values by each of the two critics, [B, 2]."""
    heads = [p["critics"][f"critics_{i}"]["head"] for i in (0, 1)]
    return np.stack([head["w"][states, 0] + head["w"][3, 0] * actions + head["b"][0] for head in heads], axis=-1)


def critic_loss(p, fixed, targets):
    """½ (Q − (r + γ (min Q' − α log π)))², the mean by weight and the sum over critics."""
    a_t, log_prob_t = sampled(fixed, BATCH["next_obs"], DRAWS["next"])
    soft = critics(targets, BATCH["next_obs"], a_t).min(axis=-1) - np.exp(fixed["log_alpha"]) * log_prob_t
    errors = critics(p, BATCH["obs"], BATCH["action"][:, 0]) - (BATCH["reward"] + BATCH["discount"] * soft)[:, None]
    return 0.5 * np.sum(np.mean(BATCH["weight"][:, None] * errors**2, axis=0))


def policy_loss(p, fixed):
    """α log π(a) − min Q(a), for actions that the policy draws now."""
    a, log_prob = sampled(p, BATCH["obs"], DRAWS["now"])
    return np.mean(np.exp(fixed["log_alpha"]) * log_prob - critics(fixed, BATCH["obs"], a).min(axis=-1))


def temperature_loss(p, fixed):
    """−α (log π(a) + target entropy)."""
    _, log_prob = sampled(fixed, BATCH["obs"], DRAWS["now"])
    return np.mean(-np.exp(p["log_alpha"]) * (log_prob + ENTROPY))


@pytest.fixture(params=[True, False], ids=["learned temperature", "fixed temperature"])
def learns_temperature(request):
    return request.param


def test_the_tables_tell_the_critics_apart():
    params, targets = drawn(sac(), 0, 0.5), drawn(sac(), 1, 0.5)
    lowest = []
    for p, states, noise in ((targets, "next_obs", "next"), (params, "obs", "now")):
        lowest.append(critics(p, BATCH[states], sampled(params, BATCH[states], DRAWS[noise])[0]).argmin(axis=-1))
    assert all(set(each) == {0, 1} for each in lowest), "each critic is the lowest somewhere"
    online = critics(params, BATCH["next_obs"], sampled(params, BATCH["next_obs"], DRAWS["next"])[0]).argmin(axis=-1)
    assert np.any(online != lowest[0]), "the online critics disagree with the targets on which is the lowest"


def test_each_loss_moves_its_own_parameters_alone(learns_temperature):
    algorithm = sac(learn_temperature=learns_temperature)
    params, targets = drawn(algorithm, 0, 0.5), drawn(algorithm, 1, 0.5)

    def by_hand(p):
        total = critic_loss(p, params, targets) + policy_loss(p, params)
        return total + temperature_loss(p, params) if learns_temperature else total

    found = learn(algorithm, params, BATCH, DRAWS, targets)
    assert found.loss == pytest.approx(by_hand(params), rel=1e-6)
    assert_gradients(found, by_hand, params)
    losses = found.learned.metrics["loss"]
    assert losses["critic"] == pytest.approx(critic_loss(params, params, targets), rel=1e-6)
    assert losses["policy"] == pytest.approx(policy_loss(params, params), rel=1e-6)


@pytest.mark.parametrize(
    ("scope", "loss"),
    [
        ("critics", lambda p, fixed, targets: critic_loss(p, fixed, targets)),
        ("policy", lambda p, fixed, targets: policy_loss(p, fixed)),
        ("log_alpha", lambda p, fixed, targets: temperature_loss(p, fixed)),
    ],
)
def test_a_scope_has_its_gradients_from_one_loss(scope, loss):
    params, targets = drawn(sac(), 0, 0.5), drawn(sac(), 1, 0.5)
    found = learn(sac(), params, BATCH, DRAWS, targets)
    own = {path: gradient for path, gradient in found.gradients.items() if path.split(".")[0] == scope}
    assert all(np.any(gradient) for gradient in own.values())
    others = {name: child for name, child in params.items() if name != scope}
    moving = Params({scope: params[scope]})
    assert_gradients(found._replace(gradients=own), lambda p: loss(Params({**others, **p}), params, targets), moving)


def test_only_the_critics_have_targets_and_these_follow_by_tau():
    algorithm = sac(tau=0.25)
    params, targets = drawn(algorithm, 0, 0.5), drawn(algorithm, 1, 0.5)
    state, _ = algorithm.update(begun(algorithm, params, targets), BATCH, DRAWS)
    assert set(state["targets"]) == {"critics"}
    for i in (0, 1):
        old, new = (p["critics"][f"critics_{i}"]["head"]["w"] for p in (targets, state["params"]))
        found = state["targets"]["critics"][f"critics_{i}"]["head"]["w"]
        np.testing.assert_allclose(found, 0.75 * old + 0.25 * new, rtol=1e-6)
