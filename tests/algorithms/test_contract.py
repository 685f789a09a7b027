"""One contract for every algorithm, on the backends that learn."""

from __future__ import annotations

import numpy as np
import pytest

from starling.algorithms import ALGORITHMS
from starling.algorithms.base import inputs_of
from starling.backends import get_backend
from starling.components.graph.assembly import assemble
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
    no_memory,
    observations,
    root,
)

PLAIN = [Case(algo, "vector", FITS[algo][0]) for algo in ALGORITHMS]
ONE_STEP = [case for case in PLAIN if root(case).exchanges_gradients and not root(case).many_steps]
ROWS = 32
# JAX takes long to compile an update: there one case of each algorithm, and what changes an update's structure.
ON_JAX = [case for case in CASES if case.settings or (case.obs, case.action) == ("vector", FITS[case.algo][0])]
LEARNING = [(case, "torch") for case in CASES] + [(case, "jax") for case in (*ON_JAX, Case("dqn", "image", "discrete"))]
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
    noise, rate = root(case).act_noise(rng, (ROWS,)), np.full(ROWS, explore, np.float32)
    chosen = compiled(case, backend, "act")(graph.parameters(), obs, no_memory(case, ROWS), noise, rate)
    return obs, graph.backend.to_numpy(chosen)


def greedy(case, backend, obs):
    graph = built(case, backend)
    chosen = compiled(case, backend, "greedy")(graph.parameters(), obs, no_memory(case, ROWS))
    return np.asarray(graph.backend.to_numpy(chosen.action))


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
    assert_fits(chosen.action, root(case).action_space)
    assert root(case).extras.ranked(batch=True).mismatch(chosen.extras) is None
    assert root(case).memory.ranked(batch=True).mismatch(chosen.memory) is None


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
    state, learned = compiled(case, backend, "update")(root(case).init(graph.parameters()), batch, draws)
    after = graph.backend.to_numpy(state["params"])
    assert [path for path, _ in items(before)] == [path for path, _ in items(after)]
    still = [path for (path, old), (_, new) in zip(items(before), items(after)) if np.array_equal(old, new)]
    assert still == []
    values = dict(items(graph.backend.to_numpy(learned.metrics)))
    assert (learned.priorities is not None) == root(case).plan.prioritizes
    if learned.priorities is not None:
        assert np.shape(graph.backend.to_numpy(learned.priorities)) == (8,)
    assert any(name.startswith("loss.") for name in values) == root(case).exchanges_gradients
    assert all(np.isfinite(value) and np.shape(value) == () for value in values.values())
    assert all(np.isfinite(leaf).all() for leaf in leaves(after))


@pytest.mark.parametrize("case", ONE_STEP, ids=str)
def test_update_is_gradients_and_then_apply_gradients(case, backend):
    graph = built(case, backend)
    batch, draws = batch_for(case)
    whole, learned = compiled(case, backend, "update")(root(case).init(graph.parameters()), batch, draws)
    state = root(case).init(graph.parameters())
    prepared = graph.function("prepare")(state, batch)
    gradients, same_learned, _ = graph.function("gradients")(state, prepared, draws)
    parts = graph.function("apply_gradients")(state, gradients)
    numpy = graph.backend.to_numpy
    for (path, one), (_, other) in zip(
        items(numpy([whole, learned])), items(numpy([parts, same_learned])), strict=True
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
    start, progress = root(case).init(graph.parameters()), np.float32(0)
    often, _ = graph.function("update_often")(start, batches, draws, progress)
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
    again = assemble(root(case), inputs_of(root(case)), root(case).traced)
    assert list(again.parameters) == names
    assert all("." in name or name == "log_alpha" for name in names), "every parameter has a scope"


@pytest.mark.parametrize("backend", ["numpy", "jax", "torch"])
@pytest.mark.parametrize("case", MASKED, ids=str)
def test_impossible_actions_are_never_chosen(case, backend):
    rows, seen = np.arange(ROWS), set()
    for seed, explore in enumerate([1.0, 1.0, 0.3, 0.3, 0.0]):
        obs, chosen = act(case, backend, explore, seed)
        assert obs["action_mask"][rows, chosen.action].all()
        assert obs["action_mask"][rows, greedy(case, backend, obs)].all()
        seen |= set(chosen.action.tolist())
    assert seen == {0, 1, 2}


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_an_action_space_that_does_not_fit_is_refused_naming_what_does(algo):
    cls = ALGORITHMS[algo]
    for name, action in ACTIONS.items():
        if name in FITS[algo]:
            continue
        with pytest.raises(SpaceError, match=r"(?i)action.* try (ppo|dqn|sac|a2c)"):
            cls.compose(cls.Config(), OBSERVATIONS["vector"], action)


@pytest.mark.parametrize("algo", ["a2c", "bc", "es", "impala", "ppo", "reinforce"])
def test_actions_that_are_no_vector_are_refused_with_the_remedy(algo):
    cls = ALGORITHMS[algo]
    for action in (Float((2, 3), -1.0, 1.0), Float((), -1.0, 1.0), Int((2, 2), high=3), Bool(())):
        with pytest.raises(SpaceError, match="Wrap the environment so that its actions are a vector"):
            cls.compose(cls.Config(), OBSERVATIONS["vector"], action)


def test_sac_refuses_actions_without_bounds():
    cls = ALGORITHMS["sac"]
    with pytest.raises(SpaceError, match="bounded"):
        cls.compose(cls.Config(), OBSERVATIONS["vector"], Float((2,)))


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_an_algorithm_is_called_what_it_calls_itself_and_its_settings_have_defaults(algo):
    assert ALGORITHMS[algo].name == algo
    assert ALGORITHMS[algo].Config().envs >= 1


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_plan_describes_batches_that_the_losses_accept(algo):
    case = Case(algo, "vector", FITS[algo][0])
    space = root(case).plan.batch_space(root(case).step_spaces)
    batch, _ = batch_for(case)
    assert space.mismatch(batch) is None
    if not ALGORITHMS.source(algo):
        assert root(case).plan.replays == (algo in ("bc", "dqn", "r2d2", "sac"))
