import math

import numpy as np
import pytest
import torch

from starling.components.networks.layers import (
    MLP,
    LayerNorm,
    Linear,
    NoisyLinear,
    Sequential,
    activation,
    as_float,
    flatten,
    initialiser,
)
from starling.core.errors import UnknownNameError
from starling.core.params import Params
from starling.core.spaces import Float
from tests.components.building import everywhere, initial

rng = np.random.default_rng(3)
X = Float((5,)).ranked(batch=True)


def normals(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def test_linear_is_a_product_and_a_sum():
    params = Params(w=np.array([[1.0, 2.0], [3.0, 4.0]], np.float32), b=np.array([0.5, -0.5], np.float32))
    x = np.array([[1.0, 1.0], [2.0, 0.0]], np.float32)
    found = everywhere(Linear(2), {"x": Float((2,)).ranked(batch=True)}, "__call__", x, params=params)
    np.testing.assert_allclose(found, [[4.5, 5.5], [2.5, 3.5]])


@pytest.mark.parametrize("lead", [(), (4,), (3, 4)])
def test_an_mlp_takes_any_leading_dimensions(lead):
    x = normals(*lead, 5)
    found = everywhere(MLP((8, 6)), {"x": X}, "__call__", x)
    p = initial(MLP((8, 6)), x=X)
    expected = np.maximum(np.maximum(x @ p["w0"] + p["b0"], 0) @ p["w1"] + p["b1"], 0)
    assert found.shape == (*lead, 6)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["relu", "tanh", "silu", "elu", "sigmoid"])
def test_activations_are_those_of_pytorch(name):
    x = np.array([-200.0, -3.0, -0.1, 0.0, 0.1, 3.0, 200.0], np.float32)
    reference = getattr(torch.nn.functional, name, None) or getattr(torch, name)
    found = everywhere(MLP((7,)), {"x": X}, lambda c, p, x: activation(name)(x), x, gradient=False)
    np.testing.assert_allclose(found, reference(torch.from_numpy(x)).numpy(), rtol=1e-5, atol=1e-6)


def test_layer_norm_is_that_of_pytorch():
    x = 3.0 * normals(4, 5) + 2.0
    params = Params(scale=normals(5), shift=normals(5))
    found = everywhere(LayerNorm(), {"x": X}, "__call__", x, params=params)
    weight, bias = torch.from_numpy(params["scale"]), torch.from_numpy(params["shift"])
    expected = torch.nn.functional.layer_norm(torch.from_numpy(x), (5,), weight, bias).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_an_mlp_with_layer_norm_normalises_before_each_activation():
    network = MLP((8, 6), "tanh", layer_norm=True)
    p, x = initial(network, x=X), normals(4, 5)
    hidden = x
    for i in range(2):
        hidden = hidden @ p[f"w{i}"] + p[f"b{i}"]
        hidden = np.tanh((hidden - hidden.mean(-1, keepdims=True)) / np.sqrt(hidden.var(-1, keepdims=True) + 1e-5))
    np.testing.assert_allclose(everywhere(network, {"x": X}, "__call__", x), hidden, rtol=1e-4, atol=1e-6)


def test_noisy_linear_has_the_weights_mean_plus_sigma_times_noise():
    layer, x, noise = NoisyLinear(3), normals(4, 5), normals(8)
    p = initial(layer, x=X)
    f = np.sign(noise) * np.sqrt(np.abs(noise))
    w = p["w"] + p["w_sigma"] * np.outer(f[:5], f[5:])
    b = p["b"] + p["b_sigma"] * f[5:]
    np.testing.assert_allclose(everywhere(layer, {"x": X}, "__call__", x, noise), x @ w + b, rtol=1e-4, atol=1e-5)
    assert layer.noise_size(5) == 8


def test_noisy_linear_gives_every_row_its_own_noise_where_asked():
    layer, x, noise = NoisyLinear(3), normals(4, 5), normals(4, 8)
    found = everywhere(layer, {"x": X}, "__call__", x, noise)
    p = initial(layer, x=X)
    rows = [layer(p, x[i], noise[i]) for i in range(4)]
    np.testing.assert_allclose(found, rows, rtol=1e-5, atol=1e-6)


def test_noisy_linear_without_noise_is_its_mean_and_starts_with_the_papers_spread():
    layer, x = NoisyLinear(3), normals(4, 5)
    p = initial(layer, x=X)
    np.testing.assert_allclose(everywhere(layer, {"x": X}, "__call__", x), x @ p["w"] + p["b"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(p["w_sigma"], 0.5 / math.sqrt(5))
    assert np.abs(p["w"]).max() <= 1 / math.sqrt(5)


def test_sequential_feeds_each_layer_with_the_one_before():
    network, x = Sequential((Linear(4), LayerNorm(), Linear(2))), normals(3, 5)
    p = initial(network, x=X)
    assert sorted(p) == ["layers_0", "layers_1", "layers_2"]
    hidden = x @ p["layers_0"]["w"]
    hidden = (hidden - hidden.mean(-1, keepdims=True)) / np.sqrt(hidden.var(-1, keepdims=True) + 1e-5)
    found = everywhere(network, {"x": X}, "__call__", x)
    np.testing.assert_allclose(found, hidden @ p["layers_2"]["w"], rtol=1e-4, atol=1e-6)


def test_flatten_merges_trailing_dimensions_and_adds_one_to_scalars():
    assert flatten(np.zeros((7, 2, 3)), 2).shape == (7, 6)
    assert flatten(np.zeros((7, 4)), 1).shape == (7, 4)
    assert flatten(np.zeros((7,)), 0).shape == (7, 1)


def test_as_float_copies_nothing_that_is_float32_already():
    x = normals(3)
    assert as_float(x) is x
    assert as_float(np.array([1, 2], np.uint8)).dtype == np.float32


def test_initialisers_are_found_by_name_and_gain():
    w = initialiser("orthogonal:2.0")(np.random.default_rng(0), (6, 3))
    np.testing.assert_allclose(w.T @ w, 4.0 * np.eye(3), atol=1e-5)
    np.testing.assert_array_equal(initialiser("constant:0.5")(rng, (2,)), [0.5, 0.5])
    with pytest.raises(UnknownNameError, match="Did you mean 'lecun'"):
        initialiser("lekun")
    with pytest.raises(UnknownNameError, match="Did you mean 'relu'"):
        activation("rellu")
