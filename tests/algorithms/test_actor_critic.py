"""What the losses of all actor-critics share: whose gradient goes where, and what is remembered along a rollout."""

from __future__ import annotations

import numpy as np
import pytest

from starling.backends import get_backend
from starling.core.params import with_scopes
from starling.core.trees import items, map_leaves
from tests.algorithms.tables import (
    GAMMA,
    ROLLOUT,
    STEPS,
    actor_critic_tables,
    drawn,
    gru,
    learn,
    loss_of,
    rollout,
    slopes,
    tabular,
)

SETTINGS = {
    "a2c": {},
    "impala": {},
    "ppo": {"minibatch": 6, "epochs": 1, "gae_lambda": 1.0, "standardise": False},
    "reinforce": {"episodes": 2, "standardise": False},
}
REMEMBERING = ("a2c", "impala", "ppo")


def actor_critic(algo, **settings):
    return tabular(algo, gamma=GAMMA, envs=2, rollout=3, **SETTINGS[algo], **settings)


def draws_of(algo, rows):
    return np.arange(rows, dtype=np.int32) if algo == "ppo" else None


@pytest.mark.parametrize("algo", SETTINGS)
def test_the_value_loss_moves_the_value_alone_and_the_policy_loss_the_policy_alone(algo):
    found = []
    for weight in (0.0, 1.0):
        algorithm = actor_critic(algo, value_weight=weight, entropy_weight=0.1)
        found.append(learn(algorithm, actor_critic_tables(algorithm), rollout(), draws_of(algo, 6)).gradients)
    without, both = found
    for path in ("policy.head.w", "policy.head.b"):
        np.testing.assert_allclose(both[path], without[path], atol=1e-8)
        assert np.any(np.abs(without[path]) > 0.01)
    for path in ("value.head.w", "value.head.b"):
        np.testing.assert_allclose(without[path], 0, atol=1e-8)
        assert np.any(np.abs(both[path]) > 0.01)


# Nothing is remembered of an episode that is over: the first environment's with the second step, the second's with the
# first, and then of a row that is no step.
FORGOTTEN = {(2, 0), (1, 1), (2, 1)}
MEMORY = np.float32([[0.5, -0.5], [-0.25, 0.75]])


def unrolled(p):
    """What the recurrent layer gives at each step and behind the last one, [T + 1, B, H]."""
    found = np.zeros((4, 2, 2))
    for b in range(2):
        h = MEMORY[b].astype(float)
        for t, state in enumerate([*ROLLOUT["obs"][:, b], ROLLOUT["next_obs"][b]]):
            h = found[t, b] = gru(p["core"], state, np.zeros(2) if (t, b) in FORGOTTEN else h)
    return found


def seen(p):
    """log π of what was done at the steps that count, and the values at all steps and behind them."""
    h, (policy, value) = unrolled(p), (p[name]["head"] for name in ("policy", "value"))
    logits = h @ policy["w"] + policy["b"]
    log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return np.array([log_p[t, b, ROLLOUT["action"][t, b]] for t, b in STEPS]), (h @ value["w"] + value["b"])[..., 0]


def torch_gradients(algorithm, params, batch, draws):
    torch = get_backend("torch")
    single = map_leaves(lambda x: x.astype(np.float32) if x.dtype == np.float64 else x, (params, batch))
    params, batch = with_scopes(torch.from_numpy(single), torch.scope_type)
    state = algorithm.init(params)
    given = None if draws is None else torch.from_numpy(draws)
    gradients, _, _ = algorithm.gradients(state, algorithm.prepare(state, batch), given)
    return dict(items(torch.to_numpy(gradients)))


@pytest.mark.parametrize("algo", REMEMBERING)
def test_memory_goes_on_from_what_was_stored_and_ends_with_an_episode(algo):
    algorithm = actor_critic(algo, memory="gru", memory_size=2, value_weight=0.25, entropy_weight=0.0)
    params = drawn(algorithm, 0)
    old, v = seen(params)
    returns = np.array([1 + 0.5 * 3, 3, 0 + 0.5 * v[3, 0], 0 + 0.5 * 6, 1 + 0.5 * v[3, 1]])
    advantages = returns - [v[step] for step in STEPS]
    log_prob = np.zeros((3, 2))
    for step, each in zip(STEPS, old):
        log_prob[step] = each

    def by_hand(p):
        new, v = seen(p)
        weighed = np.exp(new - old) if algo == "ppo" else new
        return -np.mean(weighed * advantages) + 0.125 * np.mean(([v[step] for step in STEPS] - returns) ** 2)

    batch = {**ROLLOUT, "memory": {"h": MEMORY}, "log_prob": log_prob}
    assert loss_of(algorithm, params, batch, draws_of(algo, 2)) == pytest.approx(by_hand(params), rel=1e-6)
    # By PyTorch: networks take features as float32, too coarse for central differences through a recurrent layer.
    expected = slopes(by_hand, params)
    for path, gradient in torch_gradients(algorithm, params, batch, draws_of(algo, 2)).items():
        np.testing.assert_allclose(gradient, expected[path], rtol=1e-4, atol=1e-5, err_msg=path)
