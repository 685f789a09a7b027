"""The same mathematics everywhere: NumPy by central differences, JAX and PyTorch by their own derivatives."""

from __future__ import annotations

import numpy as np
import pytest

from starling.core.trees import items, map_leaves
from tests.algorithms.cases import Case, batch_for, built, compiled, no_memory, observations, root

CASES = [
    Case("a2c", "vector", "discrete"),
    Case("a2c", "vector", "continuous"),
    Case("bc", "vector", "discrete"),
    Case("bc", "vector", "continuous"),
    Case("dqn", "vector", "discrete"),
    Case("dqn", "masked", "discrete"),
    Case("dqn", "vector", "discrete", (("double", False), ("dueling", True))),
    Case("impala", "vector", "discrete"),
    Case("impala", "vector", "continuous", (("adam", False), ("vtrace_lambda", 0.9))),
    Case("ppo", "vector", "discrete"),
    Case("ppo", "vector", "discrete", (("vtrace", True),)),
    Case("ppo", "vector", "continuous", (("clip_value", 0.2), ("entropy_weight", 0.01))),
    Case("ppo", "vector", "discrete", (("normalise_observations", True), ("normalise_rewards", True))),
    Case("r2d2", "vector", "discrete"),
    Case("reinforce", "vector", "discrete"),
    Case("sac", "vector", "continuous"),
]
PLAIN = [Case(algo, "vector", "discrete") for algo in ("a2c", "dqn", "impala", "ppo")]
REMEMBERING = [
    Case("ppo", "vector", "discrete", (("memory", "lstm"),)),
    Case("impala", "vector", "discrete", (("memory", "gru"),)),
]


def first_gradients(case, backend):
    """Gradients and metrics of the first step, as the algorithm's own ``update`` takes them."""
    graph, algorithm = built(case, backend), root(case)
    batch, draws = batch_for(case)
    state = algorithm.init(graph.parameters())
    prepared = compiled(case, backend, "prepare")(state, batch)
    gradients, learned, _ = compiled(case, backend, "gradients")(state, prepared, algorithm.steps_of(draws)[0])
    return dict(items(graph.backend.to_numpy(gradients))), dict(items(graph.backend.to_numpy(learned)))


def acting(case, backend, params, obs, noise, explore):
    """What is chosen for 32 observations."""
    rate = np.full(32, explore, np.float32)
    chosen = compiled(case, backend, "act")(params, obs, no_memory(case, 32), noise, rate)
    return built(case, backend).backend.to_numpy(chosen)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_first_losses_and_gradients_agree_to_1e_4(case):
    exact, exact_metrics = first_gradients(case, "numpy")
    assert any(np.any(gradient) for gradient in exact.values())
    for backend in ("jax", "torch"):
        gradients, metrics = first_gradients(case, backend)
        assert gradients.keys() == exact.keys()
        for path, gradient in gradients.items():
            scale = max(np.abs(exact[path]).max(), 1e-3)
            assert np.abs(gradient - exact[path]).max() <= 1e-4 * scale, f"{backend}: {path}"
        assert metrics.keys() == exact_metrics.keys()
        for path, value in metrics.items():
            np.testing.assert_allclose(value, exact_metrics[path], rtol=1e-4, atol=1e-6, err_msg=f"{backend}: {path}")


@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_weights_trained_on_jax_act_the_same_on_pytorch_and_numpy(case):
    trained = built(case, "jax")
    state = root(case).init(trained.parameters())
    for seed in range(3):
        state, _ = compiled(case, "jax", "update")(state, *batch_for(case, seed))
    weights = map_leaves(np.array, trained.backend.to_numpy(state["params"]))
    rng = np.random.default_rng(5)
    obs, noise = observations(case, rng, (32,)), root(case).act_noise(rng, (32,))
    chosen, best = {}, {}
    for backend in ("jax", "torch", "numpy"):
        graph = built(case, backend)
        placed = graph.place(weights)
        chosen[backend] = acting(case, backend, placed, obs, noise, 0.5)
        best[backend] = graph.backend.to_numpy(
            compiled(case, backend, "greedy")(placed, obs, no_memory(case, 32)).action
        )
    for backend in ("torch", "numpy"):
        np.testing.assert_allclose(best[backend], best["jax"], atol=1e-5)
        for (path, value), (_, expected) in zip(items(chosen[backend]), items(chosen["jax"]), strict=True):
            np.testing.assert_allclose(value, expected, atol=1e-5, err_msg=f"{backend}: {path}")


@pytest.mark.parametrize("case", [Case("ppo", "image", "discrete"), Case("dqn", "dict", "discrete")], ids=str)
def test_images_and_dicts_are_seen_the_same_everywhere(case):
    rng = np.random.default_rng(5)
    obs, noise = observations(case, rng, (32,)), root(case).act_noise(rng, (32,))
    chosen = {}
    for backend in ("jax", "torch", "numpy"):
        graph = built(case, backend)
        chosen[backend] = acting(case, backend, graph.parameters(), obs, noise, 0.0)
    for backend in ("torch", "numpy"):
        for (path, value), (_, expected) in zip(items(chosen[backend]), items(chosen["jax"]), strict=True):
            np.testing.assert_allclose(value, expected, atol=1e-5, err_msg=f"{backend}: {path}")


@pytest.mark.parametrize("case", [*PLAIN, *REMEMBERING], ids=str)
def test_a_whole_update_agrees_between_jax_and_pytorch(case):
    after = {}
    for backend in ("jax", "torch"):
        graph = built(case, backend)
        state, _ = compiled(case, backend, "update")(root(case).init(graph.parameters()), *batch_for(case))
        after[backend] = dict(items(graph.backend.to_numpy(state["params"])))
    for path, value in after["jax"].items():
        np.testing.assert_allclose(after["torch"][path], value, rtol=1e-3, atol=2e-5, err_msg=path)
