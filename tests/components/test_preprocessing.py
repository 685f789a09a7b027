import numpy as np
import pytest

from starling.backends import get_backend, ops
from starling.components.networks.preprocessing import OneHot, RunningNormaliser, Scale, Stack
from starling.core.errors import ConfigError, SpaceError
from starling.core.params import Params
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


@pytest.mark.parametrize("backend", BACKENDS)
def test_merged_statistics_are_those_of_all_rows_at_once(backend):
    backend = get_backend(backend)
    batches = [(5.0 + 3.0 * rng.standard_normal((n, 3))).astype(np.float32) for n in (1, 7, 64, 2)]
    batches.append(rng.standard_normal((4, 5, 3)).astype(np.float32))  # time and batch
    p = backend.from_numpy(initial(RunningNormaliser(), **X))
    observe = backend.compile(RunningNormaliser().observe)
    for batch in batches:
        p = observe(p, batch)
    p = backend.to_numpy(p)
    rows = np.concatenate([batch.reshape(-1, 3) for batch in batches])
    assert p["count"] == len(rows)
    np.testing.assert_allclose(p["mean"], rows.mean(0), rtol=1e-5)
    np.testing.assert_allclose(p["m2"] / p["count"], rows.var(0), rtol=1e-5)


@pytest.mark.parametrize("lead", [(6,), (2, 6)])
def test_observations_are_normalised_and_clipped(lead):
    rows = (10.0 + 4.0 * rng.standard_normal((200, 3))).astype(np.float32)
    p = RunningNormaliser().observe(initial(RunningNormaliser(), **X), rows)
    x = (10.0 + 4.0 * rng.standard_normal((*lead, 3))).astype(np.float32)
    x[..., 0, 0] = 1e6
    found = everywhere(RunningNormaliser(clip=5.0), X, "__call__", x, params=p, gradient=False)
    np.testing.assert_allclose(found, np.clip((x - rows.mean(0)) / rows.std(0), -5, 5), rtol=1e-4, atol=1e-5)
    assert found[..., 0, 0].max() == 5.0


def test_before_the_first_observation_nothing_changes():
    x = rng.standard_normal((4, 3)).astype(np.float32)
    np.testing.assert_allclose(everywhere(RunningNormaliser(), X, "__call__", x, gradient=False), x, rtol=1e-6)


def test_statistics_are_per_element_of_an_observation_of_any_rank():
    normaliser = RunningNormaliser(rank=2)
    x = rng.standard_normal((9, 2, 3)).astype(np.float32)
    p = normaliser.observe(initial(normaliser, x=Float((2, 3)).ranked(batch=True)), x)
    np.testing.assert_allclose(p["mean"], x.mean(0), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_gradient_reaches_the_statistics(backend):
    backend = get_backend(backend)
    x = rng.standard_normal((8, 3)).astype(np.float32)
    seen = RunningNormaliser().observe(initial(RunningNormaliser(), **X), x)
    params = Params(norm=seen, scale=np.array(2.0, np.float32))

    def loss(p, x):
        y = p["scale"] * RunningNormaliser()(p["norm"], x)
        return ops(y).sum(y * y), None

    _, gradient = backend.ops.value_and_grad(loss)(backend.from_numpy(params), backend.from_numpy(x))
    gradient = backend.to_numpy(gradient)
    assert all(not leaf.any() for leaf in gradient["norm"].values())
    assert gradient["scale"] > 0
