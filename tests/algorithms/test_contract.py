"""One contract for every algorithm, on the backends that learn."""

from __future__ import annotations

import time

import numpy as np
import pytest

from starling.algorithms import ALGORITHMS
from starling.algorithms.base import inputs_of
from starling.algorithms.plans import Replay
from starling.backends import get_backend
from starling.components.graph.assembly import assemble
from starling.components.graph.build import build
from starling.core.errors import SpaceError
from starling.core.spaces import Bool, Float, Int
from starling.core.trees import items, leaves, map_leaves
from tests.algorithms.cases import (
    ACTIONS,
    CASES,
    FITS,
    OBSERVATIONS,
    Case,
    assembled,
    batch_for,
    built,
    compiled,
    observations,
    root,
)

ONE_STEP = [Case(algo, "vector", FITS[algo][0]) for algo in ("a2c", "dqn", "sac")]
ROWS = 32
# Convolutions take long to compile; a2c and sac see images through the same encoder as ppo and dqn.
LEARNING = [(case, "torch") for case in CASES] + [
    (case, "jax") for case in CASES if case.obs != "image" or case.algo in ("ppo", "dqn")
]
MASKED = [case for case in CASES if case.obs == "masked"]


@pytest.fixture(params=["jax", "torch"])
def backend(request):
    return request.param


@pytest.fixture(params=CASES, ids=str)
def case(request):
    return request.param


def act(case, backend, explore=1.0, seed=1):
    rng = np.random.default_rng(seed)
    obs = observations(case, rng, (ROWS,))
    graph = built(case, backend)
    noise = root(case).act_noise(rng, (ROWS,))
    chosen = compiled(case, backend, "act")(graph.parameters(), obs, noise, np.float32(explore))
    return obs, graph.backend.to_numpy(chosen)


def greedy(case, backend, obs):
    graph = built(case, backend)
    return np.asarray(graph.backend.to_numpy(compiled(case, backend, "greedy")(graph.parameters(), obs)))


def assert_fits(action, space):
    """Actions of the space; a Gaussian's are clipped on their way out only, and switches may be 0 and 1."""
    assert action.shape == (ROWS, *space.shape)
    assert action.dtype.kind == {"float32": "f", "int32": "i", "bool": "i"}[space.dtype]
    unbounded = Float(space.shape) if isinstance(space, Float) else space
    assert unbounded.ranked(batch=True).mismatch(action.astype(space.dtype)) is None
    assert np.array_equal(action, action.astype(space.dtype))


@pytest.mark.parametrize("backend", ["numpy", "jax", "torch"])
def test_chosen_actions_lie_in_the_action_space(case, backend):
    _, chosen = act(case, backend)
    assert_fits(chosen["action"], root(case).action_space)
    for name, extra in root(case).extras.spaces.items():
        assert extra.ranked(batch=True).mismatch(chosen[name]) is None
    assert set(chosen) == {"action", *root(case).extras.spaces}


@pytest.mark.parametrize("backend", ["numpy", "jax", "torch"])
def test_greedy_actions_lie_in_the_action_space(case, backend):
    obs = observations(case, np.random.default_rng(1), (ROWS,))
    assert_fits(greedy(case, backend, obs), root(case).action_space)


@pytest.mark.parametrize("action", ["continuous"])
@pytest.mark.parametrize("algo", [algo for algo in ALGORITHMS if "continuous" in FITS[algo]])
def test_continuous_actions_reach_the_environment_inside_its_bounds(algo, action):
    algorithm = root(Case(algo, "vector", action))
    wild = np.array([[-9.0, 9.0], [0.0, 0.0]], np.float32)
    if algo == "sac":  # sees [−1, 1], stretched to [−2, 3]
        np.testing.assert_allclose(algorithm.to_env(np.array([[-1.0, 1.0], [0.0, 0.2]])), [[-2, 3], [0.5, 1.0]])
    else:
        np.testing.assert_array_equal(algorithm.to_env(wild), [[-2, 3], [0, 0]])


@pytest.mark.parametrize(("case", "backend"), LEARNING, ids=str)
def test_an_update_changes_every_parameter_and_reports_finite_metrics(case, backend):
    graph = built(case, backend)
    batch, draws = batch_for(case)
    before = graph.backend.to_numpy(graph.parameters())
    state, metrics = compiled(case, backend, "update")(root(case).init(graph.parameters()), batch, draws)
    after = graph.backend.to_numpy(state["params"])
    assert [path for path, _ in items(before)] == [path for path, _ in items(after)]
    still = [path for (path, old), (_, new) in zip(items(before), items(after)) if np.array_equal(old, new)]
    assert still == []
    values = dict(items(graph.backend.to_numpy(metrics)))
    assert np.shape(values.pop("priorities", np.zeros(8))) == (8,)
    assert any(name.startswith("loss.") for name in values)
    assert all(np.isfinite(value) and np.shape(value) == () for value in values.values())
    assert all(np.isfinite(leaf).all() for leaf in leaves(after))


@pytest.mark.parametrize("case", ONE_STEP, ids=str)
def test_update_is_gradients_and_then_apply_gradients(case, backend):
    graph = built(case, backend)
    batch, draws = batch_for(case)
    whole, metrics = compiled(case, backend, "update")(root(case).init(graph.parameters()), batch, draws)
    state = root(case).init(graph.parameters())
    gradients, same_metrics = graph.function("gradients")(state, batch, draws)
    parts = graph.function("apply_gradients")(state, gradients)
    numpy = graph.backend.to_numpy
    for (path, one), (_, other) in zip(
        items(numpy([whole, metrics])), items(numpy([parts, same_metrics])), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6, err_msg=path)


@pytest.mark.parametrize("case", [Case(algo, "vector", FITS[algo][0]) for algo in ("dqn", "sac")], ids=str)
def test_updating_often_is_updating_one_batch_after_another(case, backend):
    graph = built(case, backend)
    pairs = [batch_for(case, seed) for seed in range(3)]
    state, update = root(case).init(graph.parameters()), compiled(case, backend, "update")
    for batch, draws in pairs:
        state, _ = update(state, batch, draws)
    batches, draws = map_leaves(lambda *each: np.stack(each), *pairs)
    often, _ = graph.function("update_often")(root(case).init(graph.parameters()), batches, draws)
    numpy = graph.backend.to_numpy
    for (path, one), (_, other) in zip(items(numpy(state)), items(numpy(often)), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-5, err_msg=path)


def test_parameters_have_the_same_names_shapes_and_values_on_every_backend(case):
    described = {
        name: [
            (path, np.asarray(leaf)) for path, leaf in items(get_backend(name).to_numpy(built(case, name).parameters()))
        ]
        for name in ("numpy", "jax", "torch")
    }
    for name in ("jax", "torch"):
        assert [path for path, _ in described[name]] == [path for path, _ in described["numpy"]]
        for (path, one), (_, other) in zip(described[name], described["numpy"]):
            np.testing.assert_array_equal(one, other, err_msg=path)


def test_parameter_names_do_not_depend_on_the_seed_or_the_order_of_building(case):
    names = list(assembled(case).parameters)
    again = assemble(root(case), inputs_of(root(case)))
    assert list(again.parameters) == names
    assert all("." in name or name == "log_alpha" for name in names), "every parameter has a scope"


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_building_at_full_size_takes_less_than_two_seconds(algo, backend):
    cls = ALGORITHMS[algo]
    action = ACTIONS[FITS[algo][0]]
    get_backend(backend)  # importing a framework is not building
    started = time.perf_counter()
    config = cls.Config()
    algorithm = cls.compose(config, Float((17,)), action, config.envs, 100_000)
    graph = build(assemble(algorithm, inputs_of(algorithm)), get_backend(backend))
    graph.parameters()
    assert time.perf_counter() - started < 2.0
    assert graph.stats.parameters == sum(np.size(leaf) for leaf in leaves(graph.initial))


@pytest.mark.parametrize("backend", ["numpy", "jax", "torch"])
@pytest.mark.parametrize("case", MASKED, ids=str)
def test_impossible_actions_are_never_chosen(case, backend):
    rows, seen = np.arange(ROWS), set()
    for seed, explore in enumerate([1.0, 1.0, 0.3, 0.3, 0.0]):
        obs, chosen = act(case, backend, explore, seed)
        assert obs["action_mask"][rows, chosen["action"]].all()
        assert obs["action_mask"][rows, greedy(case, backend, obs)].all()
        seen |= set(chosen["action"].tolist())
    assert seen == {0, 1, 2}


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_an_action_space_that_does_not_fit_is_refused_naming_what_does(algo):
    cls = ALGORITHMS[algo]
    for name, action in ACTIONS.items():
        if name in FITS[algo]:
            continue
        with pytest.raises(SpaceError, match=r"(?i)action.* try (ppo|dqn|sac|a2c)"):
            cls.compose(cls.Config(), OBSERVATIONS["vector"], action, 1, 100)


@pytest.mark.parametrize("algo", ["a2c", "impala", "ppo"])
def test_actions_that_are_no_vector_are_refused_with_the_remedy(algo):
    cls = ALGORITHMS[algo]
    for action in (Float((2, 3), -1.0, 1.0), Float((), -1.0, 1.0), Int((2, 2), high=3), Bool(())):
        with pytest.raises(SpaceError, match="Wrap the environment so that its actions are a vector"):
            cls.compose(cls.Config(), OBSERVATIONS["vector"], action, 8, 100)


def test_sac_refuses_actions_without_bounds():
    cls = ALGORITHMS["sac"]
    with pytest.raises(SpaceError, match="bounded"):
        cls.compose(cls.Config(), OBSERVATIONS["vector"], Float((2,)), 1, 100)


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_plan_describes_batches_that_the_losses_accept(algo):
    case = Case(algo, "vector", FITS[algo][0])
    plan = root(case).plan
    space = plan.batch_space(root(case).observation_space, root(case).action_space, root(case).extras)
    batch, _ = batch_for(case)
    assert space.mismatch(batch) is None
    assert isinstance(plan, Replay) == (algo in ("dqn", "sac"))
