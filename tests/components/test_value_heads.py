import numpy as np
import pytest

from starling.components.networks.heads import (
    ActionCritic,
    CategoricalQHead,
    DuelingHead,
    ImplicitQuantileHead,
    QHead,
    QuantileHead,
    TwinCritics,
    ValueHead,
)
from starling.components.networks.layers import MLP
from starling.core.errors import ConfigError
from starling.core.params import Params
from starling.core.spaces import Float
from tests.components.building import everywhere, initial

rng = np.random.default_rng(11)
FEATURES = {"features": Float((6,)).ranked(batch=True)}


def normals(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("lead", [(4,), (2, 4)])
def test_a_q_head_is_one_linear_layer(lead):
    x, p = normals(*lead, 6), initial(QHead(3), **FEATURES)
    found = everywhere(QHead(3), FEATURES, "q_values", x)
    np.testing.assert_allclose(found, x @ p["w"] + p["b"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(p["w"].T @ p["w"], np.eye(3), atol=1e-5)


def test_dueling_by_hand():
    params = Params(
        w_value=np.array([[1.0]], np.float32),
        b_value=np.array([10.0], np.float32),
        w_advantage=np.array([[1.0, 2.0, 6.0]], np.float32),
        b_advantage=np.zeros(3, np.float32),
    )
    # x = 2: the value is 12; the advantages 2, 4, 12 have mean 6.
    spaces = {"features": Float((1,)).ranked(batch=True)}
    found = everywhere(DuelingHead(3), spaces, "q_values", np.array([[2.0]], np.float32), params=params)
    np.testing.assert_allclose(found, [[8.0, 10.0, 18.0]])


def test_a_dueling_head_with_hidden_layers_still_has_advantages_of_mean_zero():
    head, x = DuelingHead(3, hidden=5), normals(4, 6)
    p = initial(head, **FEATURES)
    found = everywhere(head, FEATURES, "q_values", x)
    value = np.maximum(x @ p["w_value_hidden"] + p["b_value_hidden"], 0) @ p["w_value"] + p["b_value"]
    np.testing.assert_allclose(found.mean(-1), value[:, 0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dueling", [False, True])
def test_categorical_values_are_the_means_of_the_distributions(dueling):
    head, x = CategoricalQHead(3, atoms=5, v_min=-2.0, v_max=2.0, dueling=dueling, hidden=4), normals(4, 6)
    logits = everywhere(head, FEATURES, "logits", x)
    q = everywhere(head, FEATURES, "q_values", x)
    assert logits.shape == (4, 3, 5)
    np.testing.assert_allclose(q, softmax(logits) @ np.array([-2, -1, 0, 1, 2]), rtol=1e-4, atol=1e-5)
    if dueling:  # atom by atom, the mean over the actions is the value stream
        p = initial(head, **FEATURES)
        value = np.maximum(x @ p["w_value_hidden"] + p["b_value_hidden"], 0) @ p["w_value"] + p["b_value"]
        np.testing.assert_allclose(logits.mean(1), value, rtol=1e-4, atol=1e-5)


def test_a_categorical_head_puts_an_actions_atoms_side_by_side():
    head = CategoricalQHead(2, atoms=3, v_min=0.0, v_max=1.0)
    params = Params(w=np.zeros((6, 6), np.float32), b=np.arange(6, dtype=np.float32))
    found = everywhere(head, FEATURES, "logits", normals(1, 6), params=params)
    np.testing.assert_array_equal(found, [[[0, 1, 2], [3, 4, 5]]])


def test_categorical_heads_refuse_an_empty_range():
    with pytest.raises(ConfigError, match="v_min must be below v_max"):
        CategoricalQHead(2, v_min=1.0, v_max=1.0)


def test_quantile_values_are_their_mean_and_fractions_are_midpoints():
    head, x = QuantileHead(3, 4), normals(5, 6)
    p = initial(head, **FEATURES)
    found = everywhere(head, FEATURES, "quantiles", x)
    np.testing.assert_allclose(found, (x @ p["w"] + p["b"]).reshape(5, 3, 4), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(everywhere(head, FEATURES, "q_values", x), found.mean(-1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(head.fractions(x), [0.125, 0.375, 0.625, 0.875])


@pytest.mark.parametrize("lead", [(5,), (2, 5)])
def test_implicit_quantiles_follow_the_cosine_embedding(lead):
    head, x = ImplicitQuantileHead(3, embedding=7), normals(*lead, 6)
    tau = rng.random((*lead, 4)).astype(np.float32)
    spaces = {**FEATURES, "tau": Float((4,), 0, 1).ranked(batch=True)}
    p = initial(head, **spaces)
    expected = np.empty((*lead, 3, 4))
    for index in np.ndindex(*lead):
        for n in range(4):
            waves = np.array([np.cos(np.pi * i * tau[index][n]) for i in range(7)])
            phi = np.maximum(waves @ p["w_tau"] + p["b_tau"], 0)
            expected[index][:, n] = (x[index] * phi) @ p["w"] + p["b"]
    found = everywhere(head, spaces, "quantiles", x, tau)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    means = everywhere(head, spaces, "q_values", x, tau)
    np.testing.assert_allclose(means, found.mean(-1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "head",
    [
        QHead(3, noisy=0.5),
        DuelingHead(3, noisy=0.5),
        DuelingHead(3, hidden=4, noisy=0.5),
        CategoricalQHead(3, atoms=5, noisy=0.5),
        CategoricalQHead(3, atoms=5, dueling=True, hidden=4, noisy=0.5),
    ],
)
def test_noisy_heads_take_exactly_their_noise(head):
    x, size = normals(64, 6), head.noise_size(6)  # so many rows that every hidden unit is on for some
    noise, p = normals(size + 1), initial(head, **FEATURES)
    before = everywhere(head, FEATURES, "q_values", x, noise)
    quiet = head.q_values(p, x, np.zeros(size, np.float32))
    np.testing.assert_allclose(quiet, head.q_values(p, x), atol=1e-5)
    # Every number of the noise matters, and one more than asked for does not.
    for i in range(size + 1):
        changed = noise.copy()
        changed[i] += 1.0
        assert (np.abs(head.q_values(p, x, changed) - before).max() > 1e-5) == (i < size), i


def test_a_value_head_drops_the_last_dimension():
    x, p = normals(2, 4, 6), initial(ValueHead(), **FEATURES)
    found = everywhere(ValueHead(), FEATURES, "__call__", x)
    assert found.shape == (2, 4)
    np.testing.assert_allclose(found, (x @ p["w"])[..., 0] + p["b"], rtol=1e-5, atol=1e-6)


def test_twin_critics_have_parameters_of_their_own():
    critics = TwinCritics(ActionCritic(MLP((8,))), count=3)
    spaces = {"obs": Float((6,)).ranked(batch=True), "action": Float((2,)).ranked(batch=True)}
    x, action = normals(4, 6), normals(4, 2)
    p = initial(critics, **spaces)
    assert sorted(p) == ["critics_0", "critics_1", "critics_2"]
    assert not np.array_equal(p["critics_0"]["torso"]["w0"], p["critics_1"]["torso"]["w0"])
    found = everywhere(critics, spaces, "q_values", x, action)
    assert found.shape == (4, 3)
    for i in range(3):
        c = p[f"critics_{i}"]
        hidden = np.maximum(np.concatenate([x, action], -1) @ c["torso"]["w0"] + c["torso"]["b0"], 0)
        np.testing.assert_allclose(found[:, i], (hidden @ c["head"]["w"])[:, 0] + c["head"]["b"], rtol=1e-4, atol=1e-5)


def test_no_critics_are_refused():
    with pytest.raises(ConfigError, match="count=0"):
        TwinCritics(ActionCritic(MLP((8,))), count=0)
