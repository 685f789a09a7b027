import math
from functools import cache

import jax
import numpy as np
import optax
import pytest
import torch

from starling.backends import get_backend
from starling.components.optimisers import SGD, Adam, RMSProp, clip_by_global_norm, global_norm
from starling.components.schedules import Constant, LinearSchedule
from starling.core.errors import ConfigError
from starling.core.params import Params, with_scopes
from starling.core.trees import items, leaves, map_leaves
from tests.components.building import BACKENDS, assert_same

STEPS = 50
RATES = {"constant": Constant(1e-2), "linear": LinearSchedule(1e-2, 1e-3, over=0.8)}
OPTAX_RATES = {"constant": 1e-2, "linear": optax.linear_schedule(1e-2, 1e-3, 40)}  # 0.8 of fifty steps


def random_tree(rng, scale=1.0):
    def draw(*shape):
        return (scale * rng.standard_normal(shape)).astype(np.float32)

    return Params(torso=Params(w=draw(5, 4), b=draw(4)), head=Params(w=draw(4, 1)), log_std=draw())


def problem():
    rng = np.random.default_rng(31)
    # Gradients of very different sizes, as training has them: some are clipped, some are not.
    return random_tree(rng), [random_tree(rng, 10.0 ** rng.uniform(-2, 0.5)) for _ in range(STEPS)]


# Ours, optax's and PyTorch's, each with its settings.
CASES = {
    "sgd": (SGD, {}, optax.sgd, {}, torch.optim.SGD, {}),
    "momentum": (SGD, {"momentum": 0.9}, optax.sgd, {"momentum": 0.9}, torch.optim.SGD, {"momentum": 0.9}),
    "rmsprop": (
        RMSProp, {"decay": 0.95, "eps": 1e-3}, optax.rmsprop, {"decay": 0.95, "eps": 1e-3, "eps_in_sqrt": False},
        torch.optim.RMSprop, {"alpha": 0.95, "eps": 1e-3},
    ),
    "rmsprop inside": (
        RMSProp, {"decay": 0.95, "eps": 1e-3, "eps_inside": True}, optax.rmsprop, {"decay": 0.95, "eps": 1e-3},
        None, {},
    ),
    "adam": (Adam, {}, optax.adam, {}, torch.optim.Adam, {}),
    "adam, other settings": (
        Adam, {"beta1": 0.5, "beta2": 0.99, "eps": 1e-5}, optax.adam, {"b1": 0.5, "b2": 0.99, "eps": 1e-5},
        torch.optim.Adam, {"betas": (0.5, 0.99), "eps": 1e-5},
    ),
    "adam without momentum": (
        Adam, {"beta1": 0.0}, optax.adam, {"b1": 0.0}, torch.optim.Adam, {"betas": (0.0, 0.999)},
    ),
    "adamw": (
        Adam, {"weight_decay": 0.1}, optax.adamw, {"weight_decay": 0.1},
        torch.optim.AdamW, {"weight_decay": 0.1},
    ),
}  # fmt: skip


def by_us(optimiser, backend):
    params, gradients = problem()
    backend = get_backend(backend)
    step = backend.compile(optimiser.step)
    params = backend.from_numpy(params)
    state = backend.from_numpy(backend.to_numpy(optimiser.init(params)))
    for i, gradient in enumerate(gradients):
        progress = np.array(i / STEPS, np.float32)
        params, state = step(params, backend.from_numpy(gradient), state, progress)
    return backend.to_numpy(params), backend.to_numpy(state)


@cache
def by_optax(case, rate, clip):
    """In double precision, like PyTorch's: what exact arithmetic would give."""
    _, _, make, settings, _, _ = CASES[case]
    with jax.enable_x64(True):
        params, gradients = map_leaves(np.float64, with_scopes(problem(), dict))
        optimiser = make(OPTAX_RATES[rate], **settings)
        optimiser = optax.chain(optax.clip_by_global_norm(clip), optimiser) if clip else optimiser
        state = optimiser.init(params)

        @jax.jit
        def step(params, gradient, state):
            updates, state = optimiser.update(gradient, state, params)
            return optax.apply_updates(params, updates), state

        for gradient in gradients:
            params, state = step(params, gradient, state)
        return [np.asarray(leaf) for leaf in leaves(params)]


@cache
def by_pytorch(case, rate, clip):
    _, _, _, _, make, settings = CASES[case]
    params, gradients = problem()
    tensors = [torch.tensor(leaf, dtype=torch.float64, requires_grad=True) for leaf in leaves(params)]
    optimiser = make(tensors, lr=1.0, **settings)
    for i, gradient in enumerate(gradients):
        for tensor, leaf in zip(tensors, leaves(gradient)):
            tensor.grad = torch.tensor(leaf, dtype=torch.float64)
        norm = math.sqrt(sum(float((tensor.grad**2).sum()) for tensor in tensors))
        if clip and norm > clip:
            for tensor in tensors:
                tensor.grad *= clip / norm
        optimiser.param_groups[0]["lr"] = RATES[rate](i / STEPS)
        optimiser.step()
    return [tensor.detach().numpy() for tensor in tensors]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("rate", "clip"), [("constant", 0.0), ("linear", 2.0)])
@pytest.mark.parametrize("case", CASES)
def test_fifty_steps_are_those_of_optax_and_pytorch(case, rate, clip, backend):
    ours, settings, _, _, pytorchs, _ = CASES[case]
    params, state = by_us(ours(RATES[rate], clip, **settings), backend)
    assert int(state["count"]) == STEPS
    assert all(np.asarray(leaf).dtype == np.float32 for leaf in leaves(params))
    references = [by_optax(case, rate, clip)] + ([by_pytorch(case, rate, clip)] if pytorchs else [])
    for reference in references:
        for (path, found), wanted in zip(items(params), reference):
            np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6, err_msg=path)


@pytest.mark.parametrize("optimiser", [SGD(momentum=0.9), RMSProp(), Adam()])
def test_the_state_moves_from_one_backend_to_another(optimiser):
    params, gradients = problem()
    _, alone = by_us(optimiser, "numpy")
    state, step = None, 0
    for name in ("torch", "jax", "numpy"):
        backend = get_backend(name)
        here = backend.from_numpy(params)
        state = optimiser.init(here) if state is None else backend.from_numpy(state)
        compiled = backend.compile(optimiser.step)
        for gradient in gradients[step : step + 20]:
            here, state = compiled(here, backend.from_numpy(gradient), state)
        step += 20
        params, state = backend.to_numpy(here), backend.to_numpy(state)
    assert_same(dict(alone), dict(state), tolerance=1e-5)


def test_the_count_is_a_whole_number_that_keeps_counting():
    params = Params(w=np.zeros(2, np.float32))
    optimiser = Adam()
    state = optimiser.init(params)
    assert state["count"].dtype == np.int32
    late = {**state, "count": np.array(2**24, np.int32)}
    assert int(optimiser.step(params, params, late)[1]["count"]) == 2**24 + 1


def test_the_first_step_of_adam_is_the_learning_rate_to_float32s_last_digits():
    params = Params(w=np.zeros(3, np.float32))
    gradient = Params(w=np.array([1e-3, -5.0, 100.0], np.float32))
    moved, _ = Adam(Constant(1.0)).step(params, gradient, Adam().init(params))
    np.testing.assert_allclose(moved["w"], [-1.0 / (1 + 1e-5), 1.0, -1.0], rtol=3e-7)


def test_parameters_without_gradient_stay_where_they_are():
    params, _ = problem()
    still = map_leaves(np.zeros_like, params)
    for optimiser in (SGD(), SGD(momentum=0.9), RMSProp(), Adam(), Adam(clip=1.0)):
        moved, _ = optimiser.step(params, still, optimiser.init(params))
        assert_same(params, moved, tolerance=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_clipping_scales_down_what_is_above_the_limit_alone(backend):
    backend = get_backend(backend)
    tree = backend.from_numpy({"a": np.array([3.0], np.float32), "b": np.array([0.0, 4.0], np.float32)})
    assert float(global_norm(tree)) == pytest.approx(5.0)
    clipped = backend.to_numpy(clip_by_global_norm(tree, 2.5))
    np.testing.assert_allclose(clipped["a"], [1.5])
    np.testing.assert_allclose(clipped["b"], [0.0, 2.0])
    untouched = backend.to_numpy(clip_by_global_norm(tree, 7.0))
    np.testing.assert_array_equal(untouched["b"], [0.0, 4.0])


def test_the_rate_depends_on_the_progress_alone_and_not_on_the_count():
    params, gradient = Params(w=np.zeros(1, np.float32)), Params(w=np.ones(1, np.float32))
    optimiser = SGD(LinearSchedule(1.0, 0.0))
    late = {"count": np.array(1000, np.int32)}
    for progress, moved in ((0.0, -1.0), (0.25, -0.75), (1.0, 0.0)):
        for state in (optimiser.init(params), late):
            np.testing.assert_allclose(optimiser.step(params, gradient, state, progress)[0]["w"], [moved])


def test_without_parameters_a_step_is_counted_and_nothing_else():
    none, optimiser = Params(), Adam(clip=1.0)
    state = {"count": np.array(4, np.int32), "mean": Params(), "square": Params()}
    moved, after = optimiser.step(none, none, state)
    assert moved == {}
    assert after == {"count": 5, "mean": {}, "square": {}}


def test_an_optimiser_moves_all_scopes_at_every_step_unless_told_otherwise():
    assert (Adam().scopes, Adam().period) == ((), 1)
    with pytest.raises(ConfigError, match=r"period=0; an optimiser steps every 1, 2, … gradient steps"):
        Adam(period=0)


def test_a_negative_clip_is_refused():
    with pytest.raises(ConfigError, match=r"clip=-1\.0"):
        Adam(clip=-1.0)
