"""Acting through the built graph against a hand-written call, on each backend.

Both take the tree of parameters and NumPy arrays, do the same arithmetic on 8 observations with a 64×64 network, and
answer with NumPy arrays. What differs is what the graph costs.

    python benchmarks/acting.py [--backend numpy] [--rounds 15] [--json]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from timing import Verdict, finish, interleaved, median, seconds_per_call

from starling.algorithms import ALGORITHMS
from starling.algorithms.base import inputs_of
from starling.algorithms.compiled.policy import Policy
from starling.backends import get_backend
from starling.components.graph.assembly import assemble
from starling.components.graph.build import Graph, build
from starling.core.spaces import Float, Int
from starling.core.trees import items

ROWS, FEATURES, ACTIONS = 8, 4, 2
REQUIRED = {"numpy": 0.85, "jax": 0.95, "torch": 0.95}
EXPLORE = 0.1


def numpy_q(p: Any, obs: Any, noise: Any, explore: Any) -> dict[str, Any]:
    torso, head = p["q"]["torso"], p["q"]["head"]
    h = np.maximum(obs @ torso["w0"] + torso["b0"], 0)
    h = np.maximum(h @ torso["w1"] + torso["b1"], 0)
    greedy = (h @ head["w"] + head["b"]).argmax(-1).astype(np.int32)
    stretched = noise / (explore + 1e-12)
    anything = np.minimum(stretched * ACTIONS, ACTIONS - 1.0).astype(np.int32)
    return {"action": np.where(noise < explore, anything, greedy)}


def numpy_policy(p: Any, obs: Any, noise: Any, explore: Any) -> dict[str, Any]:
    torso, head = p["policy"]["torso"], p["policy"]["head"]
    h = np.tanh(obs @ torso["w0"] + torso["b0"])
    h = np.tanh(h @ torso["w1"] + torso["b1"])
    logits = h @ head["w"] + head["b"]
    shifted = logits - logits.max(-1, keepdims=True)
    cumulative = np.exp(shifted).cumsum(-1)
    total = cumulative[..., -1]
    below = cumulative[..., :-1] <= (noise * total)[..., None]
    action = below.astype(np.int32).sum(-1, dtype=np.int32)
    return {"action": action, "log_prob": shifted[np.arange(len(shifted)), action] - np.log(total)}


def jax_q(p: Any, obs: Any, noise: Any, explore: Any) -> dict[str, Any]:
    torso, head = p["q"]["torso"], p["q"]["head"]
    h = jax.nn.relu(obs @ torso["w0"] + torso["b0"])
    h = jax.nn.relu(h @ torso["w1"] + torso["b1"])
    greedy = jnp.argmax(h @ head["w"] + head["b"], axis=-1).astype(jnp.int32)
    stretched = noise / (explore + 1e-12)
    anything = jnp.minimum(stretched * ACTIONS, ACTIONS - 1.0).astype(jnp.int32)
    return {"action": jnp.where(noise < explore, anything, greedy)}


def jax_policy(p: Any, obs: Any, noise: Any, explore: Any) -> dict[str, Any]:
    torso, head = p["policy"]["torso"], p["policy"]["head"]
    h = jnp.tanh(obs @ torso["w0"] + torso["b0"])
    h = jnp.tanh(h @ torso["w1"] + torso["b1"])
    logits = h @ head["w"] + head["b"]
    shifted = logits - logits.max(axis=-1, keepdims=True)
    cumulative = jnp.cumsum(jnp.exp(shifted), axis=-1)
    total = cumulative[..., -1]
    below = cumulative[..., :-1] <= (noise * total)[..., None]
    action = below.astype(jnp.int32).sum(axis=-1, dtype=jnp.int32)
    log_prob = jnp.take_along_axis(shifted, action[..., None], axis=-1)[..., 0] - jnp.log(total)
    return {"action": action, "log_prob": log_prob}


def torch_q(p: Any, obs: Any, noise: Any, explore: Any) -> dict[str, Any]:
    torso, head = p["q"]["torso"], p["q"]["head"]
    obs, noise, explore = torch.from_numpy(obs), torch.from_numpy(noise), torch.from_numpy(explore)
    h = torch.relu(obs @ torso["w0"] + torso["b0"])
    h = torch.relu(h @ torso["w1"] + torso["b1"])
    greedy = torch.argmax(h @ head["w"] + head["b"], dim=-1).to(torch.int32)
    stretched = noise / (explore + 1e-12)
    anything = torch.clamp(stretched * ACTIONS, max=ACTIONS - 1.0).to(torch.int32)
    return {"action": torch.where(noise < explore, anything, greedy)}


def torch_policy(p: Any, obs: Any, noise: Any, explore: Any) -> dict[str, Any]:
    torso, head = p["policy"]["torso"], p["policy"]["head"]
    obs, noise = torch.from_numpy(obs), torch.from_numpy(noise)
    h = torch.tanh(obs @ torso["w0"] + torso["b0"])
    h = torch.tanh(h @ torso["w1"] + torso["b1"])
    logits = h @ head["w"] + head["b"]
    shifted = logits - torch.amax(logits, dim=-1, keepdim=True)
    cumulative = torch.cumsum(torch.exp(shifted), dim=-1)
    total = cumulative[..., -1]
    below = cumulative[..., :-1] <= (noise * total)[..., None]
    action = torch.sum(below.to(torch.int32), dim=-1, dtype=torch.int32)
    log_prob = torch.gather(shifted, -1, action.long().unsqueeze(-1)).squeeze(-1) - torch.log(total)
    return {"action": action, "log_prob": log_prob}


BY_HAND: dict[str, dict[str, Callable[..., dict[str, Any]]]] = {
    "numpy": {"dqn": numpy_q, "ppo": numpy_policy},
    "jax": {"dqn": jax.jit(jax_q), "ppo": jax.jit(jax_policy)},
    "torch": {"dqn": torch_q, "ppo": torch_policy},
}
TITLES = {"dqn": "Q-network, ε-greedy", "ppo": "PPO policy, sampled"}


def graph_of(algo: str, backend: str) -> Graph:
    """The algorithm built for CartPole's spaces with a 64×64 network."""
    obs, action = Float((FEATURES,)), Int((), 0, ACTIONS)
    cls = ALGORITHMS[algo]
    root = cls.compose(cls.Config(hidden=(64, 64)), obs, action)
    return build(assemble(root, inputs_of(root), root.traced), get_backend(backend))


def by_hand(algo: str, backend: str, params: Any) -> Callable[..., dict[str, Any]]:
    """The hand-written call with the same way in and out as a policy."""
    fn = BY_HAND[backend][algo]
    if backend == "numpy":
        return lambda obs, noise, explore: fn(params, obs, noise, explore)
    out = np.asarray if backend == "jax" else torch.Tensor.numpy

    def act(obs: Any, noise: Any, explore: Any) -> dict[str, Any]:
        return {name: out(leaf) for name, leaf in fn(params, obs, noise, explore).items()}

    return act


def measure(algo: str, backend: str, rounds: int, calls: int) -> Verdict:
    graph = graph_of(algo, backend)
    policy = Policy(graph)
    hand = by_hand(algo, backend, graph.parameters())
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((ROWS, FEATURES), dtype=np.float32)
    noise = rng.random(ROWS, dtype=np.float32)
    explore, memory = np.full(ROWS, EXPLORE, np.float32), policy.no_memory(ROWS)
    choice = policy.act(obs, memory, noise, explore)
    _check_equal({"action": choice.action, **choice.extras}, hand(obs, noise, explore))
    contestants = SimpleNamespace(
        graph=lambda: policy.act(obs, memory, noise, explore), hand=lambda: hand(obs, noise, explore)
    )
    for fn in vars(contestants).values():
        seconds_per_call(fn, calls)
    timed = {name: (lambda fn=fn: seconds_per_call(fn, calls)) for name, fn in vars(contestants).items()}
    results = interleaved(timed, rounds)
    ours, other = median(results["graph"]) * 1e6, median(results["hand"]) * 1e6
    # Neighbouring blocks see the same machine, so their ratio is steadier than that of the medians.
    ratio = median([theirs / mine for mine, theirs in zip(results["graph"], results["hand"])])
    return Verdict(f"{backend}: {TITLES[algo]}", ours, other, "µs/call", ratio, REQUIRED[backend])


def _check_equal(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    for (name, mine), (_, other) in zip(items(ours), items(theirs), strict=True):
        if mine.dtype != other.dtype or not np.allclose(mine, other, rtol=1e-6, atol=1e-6):
            raise SystemExit(f"{name} of the graph is {mine} ({mine.dtype}), by hand {other} ({other.dtype}).")


def main() -> int:
    parser = argparse.ArgumentParser(description="Acting through the built graph against a hand-written call.")
    parser.add_argument("--backend", choices=BY_HAND, help="only this backend")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--calls", type=int, default=2_000, help="in a row in each round")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    backends = [arguments.backend] if arguments.backend else list(BY_HAND)
    with torch.no_grad():
        verdicts = [measure(a, b, arguments.rounds, arguments.calls) for b in backends for a in TITLES]
    return finish("acting on 8 observations, against a hand-written call", verdicts, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
