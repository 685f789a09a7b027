import numpy as np
import pytest

from starling.backends import get_backend
from starling.components.networks.preprocessing import OneHot, Scale, Stack
from starling.core.errors import ConfigError, SpaceError
from starling.core.spaces import Float, Int
from tests.components.building import BACKENDS, everywhere, initial

rng = np.random.default_rng(23)
X = {"x": Float((3,)).ranked(batch=True)}


def test_scale_brings_bytes_between_zero_and_one():
    x = np.array([[0, 51, 255]], np.uint8)
    space = {"x": Int((3,), 0, 256, "uint8").ranked(batch=True)}
    found = everywhere(Scale(), space, "__call__", x, gradient=False)
    np.testing.assert_allclose(found, [[0.0, 0.2, 1.0]], rtol=1e-6)
    assert found.dtype == np.float32


def test_scale_shifts_before_it_multiplies():
    x = np.array([[2.0, 4.0, 6.0]], np.float32)
    np.testing.assert_allclose(everywhere(Scale(0.5, 2.0), X, "__call__", x, gradient=False), [[0.0, 1.0, 2.0]])


@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64"])
def test_one_hot_rows_have_a_single_one(dtype):
    x = np.array([2, 0], dtype)
    space = {"x": Int((), 0, 3, dtype).ranked(batch=True)}
    found = everywhere(OneHot(3), space, "__call__", x, gradient=False)
    np.testing.assert_array_equal(found, [[0, 0, 1], [1, 0, 0]])


def test_one_hot_refuses_floats_while_assembling():
    with pytest.raises(SpaceError, match="int was expected"):
        initial(OneHot(3), **X)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_stack_holds_the_last_observations_oldest_first(backend):
    backend = get_backend(backend)
    stack = Stack(3)
    step = backend.compile(stack.step)
    obs = [np.full((2, 1, 1), i, np.uint8) for i in range(1, 6)]
    state = backend.compile(stack.initial)(obs[0])
    seen = []
    for i, frame in enumerate(obs):
        reset = np.array([i == 0, i == 3])  # the second row begins anew at its fourth observation
        state, stacked = step(state, frame, reset)
        seen.append(np.asarray(backend.to_numpy(stacked))[:, 0].tolist())
    assert seen == [
        [[0, 0, 1], [0, 0, 1]],
        [[0, 1, 2], [0, 1, 2]],
        [[1, 2, 3], [1, 2, 3]],
        [[2, 3, 4], [0, 0, 4]],
        [[3, 4, 5], [0, 4, 5]],
    ]


def test_a_stack_concatenates_channels():
    stack = Stack(2)
    obs = rng.integers(0, 256, (4, 8, 8, 3)).astype(np.uint8)
    _, stacked = stack.step(stack.initial(obs), obs, np.ones(4, bool))
    assert stacked.shape == (4, 8, 8, 6)
    assert stacked.dtype == np.uint8
    np.testing.assert_array_equal(stacked[..., 3:], obs)


def test_a_stack_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="count=0"):
        Stack(0)
