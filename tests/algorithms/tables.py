"""Algorithms whose networks are tables, so that a loss and its gradient can be worked out by hand.

An observation is one of three states, seen one-hot, and no hidden layer lies behind it: the weights ``w`` of a head
have a row for each state.

    params = tables(dqn, {"q.head.w": [[1, 2], [3, 5], [0, 4]]})      # zeros elsewhere
    found = learn(dqn, params, batch, targets=targets)
    assert found.loss == pytest.approx(by_hand(params))
    assert_gradients(found, by_hand, params)

``by_hand`` is plain NumPy; what no gradient flows through is a constant in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from starling.algorithms import ALGORITHMS
from starling.algorithms.base import Learned, inputs_of
from starling.algorithms.gradient import GradientAlgorithm
from starling.components.graph.assembly import assemble
from starling.components.graph.build import create_parameters
from starling.core.params import Params
from starling.core.spaces import Int, Space
from starling.core.trees import Tree, items, map_leaves, map_with_path

STATES = Int((), high=3)
CHOICE = Int((), high=2)


def tabular(algo: str, action: Space = CHOICE, obs: Space = STATES, **settings: Any) -> Any:
    """An algorithm without hidden layers."""
    cls = ALGORITHMS[algo]
    return cls.compose(cls.Config(hidden=(), **settings), obs, action)


def drawn(algorithm: Any, seed: int, scale: float = 1.0) -> Params:
    """Normal parameters in double precision."""
    rng = np.random.default_rng(seed)
    return map_leaves(lambda leaf: scale * rng.standard_normal(leaf.shape), _initial(algorithm))


def tables(algorithm: Any, values: dict[str, Any]) -> Params:
    """The parameters by path, zeros elsewhere, in double precision."""
    initial = _initial(algorithm)
    assert set(values) <= {path for path, _ in items(initial)}
    return map_with_path(
        lambda path, leaf: np.array(np.broadcast_to(values.get(path, 0.0), leaf.shape), float), initial
    )


def _initial(algorithm: Any) -> Params:
    return create_parameters(assemble(algorithm, inputs_of(algorithm), algorithm.traced), seed=0)


def arrays(batch: dict[str, Any]) -> dict[str, Any]:
    """Lists as arrays: whole numbers, truth values, and float32 for the others."""
    kinds = {"i": np.int32, "b": np.bool_, "f": np.float32}
    return {name: np.asarray(value, kinds[np.asarray(value).dtype.kind]) for name, value in batch.items()}


def begun(algorithm: GradientAlgorithm, params: Params, targets: Any = None) -> Tree:
    """A learner's state, with slow copies of other parameters than its own."""
    copies = Params((scope, (targets or params)[scope]) for scope in algorithm.targets)
    return {**algorithm.init(params), "targets": copies}


class Found(NamedTuple):
    """What an algorithm makes of a batch."""

    loss: float
    learned: Learned
    gradients: dict[str, np.ndarray]  # by path


def learn(algorithm: GradientAlgorithm, params: Params, batch: Tree, draws: Tree = None, targets: Any = None) -> Found:
    """The loss of a gradient step and its gradients; ``targets`` are the parameters that slow copies are of."""
    state = begun(algorithm, params, targets)
    gradients, learned, _ = algorithm.gradients(state, algorithm.prepare(state, batch), draws)
    return Found(loss_of(algorithm, params, batch, draws, targets), learned, dict(items(gradients)))


def loss_of(
    algorithm: GradientAlgorithm, params: Params, batch: Tree, draws: Tree = None, targets: Any = None
) -> float:
    """The loss alone."""
    state = begun(algorithm, params, targets)
    seen = algorithm.minibatch(algorithm.prepare(state, batch), draws)
    return float(algorithm.loss(params, state, seen, draws)[0])


def assert_gradients(found: Found, by_hand: Callable[[Params], float], params: Params) -> None:
    """The gradients of every parameter are those of ``by_hand``, by central differences."""
    expected = slopes(by_hand, params)
    assert found.gradients.keys() == expected.keys()
    for path, gradient in found.gradients.items():
        np.testing.assert_allclose(gradient, expected[path], rtol=1e-5, atol=1e-6, err_msg=path)


def slopes(function: Callable[[Params], float], params: Params, step: float = 1e-5) -> dict[str, np.ndarray]:
    """The derivative of ``function`` by each element of each parameter, by path."""

    def moved(path: str, index: tuple[int, ...], by: float) -> float:
        copy = map_leaves(np.array, params)
        dict(items(copy))[path][index] += by
        return function(copy)

    def slope(path: str, index: tuple[int, ...]) -> float:
        return (moved(path, index, step) - moved(path, index, -step)) / (2 * step)

    return {
        path: np.array([slope(path, index) for index in np.ndindex(leaf.shape)]).reshape(leaf.shape)
        for path, leaf in items(params)
    }


# -- an actor-critic's tables, a rollout for them, and the loss

PROBABILITIES = np.array([[0.25, 0.75], [0.5, 0.5], [0.8, 0.2]])  # of the actions in each state
VALUES = np.array([1.0, 2.0, 4.0])  # of the states
GAMMA = 0.5

# Two environments, three steps, five of which count. One episode of the first terminates with the second step. One of
# the second is cut at the first, where the value of its final observation is 6; the row behind that is no step.
ROLLOUT = arrays(
    {
        "obs": [[0, 2], [1, 1], [2, 0]],
        "action": [[1, 0], [0, 1], [1, 0]],
        "reward": [[1.0, 0.0], [3.0, 50.0], [0.0, 1.0]],
        "terminated": [[False, False], [True, False], [False, False]],
        "truncated": [[False, True], [False, False], [False, False]],
        "bootstrap": [[0.0, 6.0], [0.0, 0.0], [0.0, 0.0]],
        "mask": [[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]],
        "next_obs": [0, 1],
    }
)
STEPS = [(0, 0), (1, 0), (2, 0), (0, 1), (2, 1)]  # those that count: (time, environment)
# With λ = 1, environment by environment: r + γ·(…) to the end, to the cut, or to the value of ``next_obs``.
RETURNS = np.array([1 + 0.5 * 3, 3, 0 + 0.5 * 1, 0 + 0.5 * 6, 1 + 0.5 * 2])
ADVANTAGES = np.array([2.5 - 1, 3 - 2, 0.5 - 4, 3 - 4, 2 - 1])


def actor_critic_tables(algorithm: Any, values: np.ndarray = VALUES) -> Params:
    return tables(algorithm, {"policy.head.w": np.log(PROBABILITIES), "value.head.w": values[:, None]})


def rollout(ratios: Any = 1.0) -> Tree:
    """``ROLLOUT`` by a policy under which the learner's is so many times as likely to do the same, by ``STEPS``."""
    likely = PROBABILITIES[ROLLOUT["obs"], ROLLOUT["action"]]
    for (t, b), ratio in zip(STEPS, np.broadcast_to(ratios, 5)):
        likely[t, b] /= ratio
    return {**ROLLOUT, "log_prob": np.log(likely)}


def log_probs(p: Params, states: Any) -> np.ndarray:
    """log π of all actions in some states."""
    logits = p["policy"]["head"]["w"][states] + p["policy"]["head"]["b"]
    return logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))


def values(p: Params, states: Any) -> np.ndarray:
    return p["value"]["head"]["w"][states, 0] + p["value"]["head"]["b"][0]


def at_steps(x: np.ndarray, steps: Any = STEPS) -> np.ndarray:
    """The entries of [T, B] at these steps."""
    return np.array([x[step] for step in steps])


def actor_critic_loss(
    p: Params,
    batch: Tree,
    advantages: np.ndarray,
    returns: np.ndarray,
    value_weight: float,
    entropy_weight: float,
    steps: Any = STEPS,
) -> float:
    """−A · log π(a) + c · ½ (v − G)² − e · H(π), the mean over the steps that count."""
    states, actions = at_steps(batch["obs"], steps), at_steps(batch["action"], steps)
    log_p = log_probs(p, states)
    policy = -np.mean(advantages * log_p[np.arange(len(steps)), actions])
    value = 0.5 * np.mean((values(p, states) - returns) ** 2)
    entropy = -np.mean(np.sum(np.exp(log_p) * log_p, axis=-1))
    return policy + value_weight * value - entropy_weight * entropy


# -- a recurrent layer


def gru(p: Params, states: Any, h: np.ndarray) -> np.ndarray:
    """h' = z · h + (1 − z) · n, with z = σ(…), n = tanh(… + r · (U h + b)), r = σ(…)."""
    size = len(p["b_candidate"])
    given, kept = p["w"][states] + p["b"], h @ p["u"]
    r, z = (1 / (1 + np.exp(-(given[i : i + size] + kept[i : i + size]))) for i in (0, size))
    n = np.tanh(given[2 * size :] + r * (kept[2 * size :] + p["b_candidate"]))
    return z * h + (1 - z) * n
