"""Small instances of every algorithm, and batches for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from starling.algorithms import ALGORITHMS
from starling.algorithms.base import Algorithm, inputs_of
from starling.backends import get_backend
from starling.components.graph.assembly import Assembly, assemble
from starling.components.graph.build import Graph, build
from starling.core.errors import SpaceError
from starling.core.params import Params, with_scopes
from starling.core.spaces import Bool, Dict, Float, Int, Space

SMALL: dict[str, dict[str, Any]] = {
    "a2c": {"envs": 2, "rollout": 4},
    "bc": {"batch_size": 8},
    "dqn": {"batch_size": 8, "learning_starts": 8, "capacity": 64},
    "es": {"population": 8},
    "impala": {"envs": 2, "rollout": 4},
    "ppo": {"envs": 2, "rollout": 4, "minibatch": 4, "epochs": 2},
    "r2d2": {"envs": 2, "batch_size": 8, "capacity": 64, "length": 4, "burn_in": 2, "overlap": 2, "memory_size": 4},
    "reinforce": {"envs": 2, "episodes": 2, "episode_length": 4},
    "sac": {"batch_size": 8, "learning_starts": 8, "capacity": 64},
}

OBSERVATIONS: dict[str, Space] = {
    "vector": Float((3,)),
    "dict": Dict(place=Float((2,)), kind=Int((), high=4)),
    "image": Int((36, 36, 2), high=256, dtype="uint8"),
    "masked": Dict(observation=Float((3,)), action_mask=Bool((3,))),
}

ACTIONS: dict[str, Space] = {
    "discrete": Int((), high=3),
    "continuous": Float((2,), -2.0, 3.0),
    "several": Int((2,), high=np.array([3, 2])),
    "switches": Bool((2,)),
}

FITS = {  # the first is what the costly tests take
    "a2c": ("discrete", "continuous", "several", "switches"),
    "bc": ("discrete", "continuous", "several", "switches"),
    "dqn": ("discrete",),
    "es": ("discrete", "continuous", "several", "switches"),
    "impala": ("discrete", "continuous", "several", "switches"),
    "ppo": ("discrete", "continuous", "several", "switches"),
    "r2d2": ("discrete",),
    "reinforce": ("discrete", "continuous", "several", "switches"),
    "sac": ("continuous",),
}


def _composes(algo: str, action: Space) -> bool:
    try:
        ALGORITHMS[algo].compose(ALGORITHMS[algo].Config(), OBSERVATIONS["vector"], action)
    except SpaceError:
        return False
    return True


for algo in ALGORITHMS:  # those of plugins: with settings of their own, and for what they take
    SMALL.setdefault(algo, {})
    FITS[algo] = FITS.get(algo) or tuple(name for name, action in ACTIONS.items() if _composes(algo, action))


@dataclass(frozen=True)
class Case:
    """An algorithm with the kinds of its spaces; ``settings`` beside the small ones."""

    algo: str
    obs: str
    action: str
    settings: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return "-".join([self.algo, self.obs, self.action, *(f"{k}={v}" for k, v in self.settings)])


def _cases() -> list[Case]:
    plain = [Case(algo, "vector", action) for algo in ALGORITHMS for action in FITS[algo][: 4 if algo == "ppo" else 2]]
    others = [Case(algo, obs, FITS[algo][0]) for algo in ALGORITHMS for obs in ("dict", "image")]
    masked = [Case(algo, "masked", "discrete") for algo in ALGORITHMS if "discrete" in FITS[algo]]
    switched = [Case("dqn", "vector", "discrete", (("double", False), ("dueling", True), ("n_step", 3)))]
    switched.append(Case("dqn", "vector", "discrete", (("alpha", 0.6),)))
    switched.append(Case("ppo", "vector", "discrete", (("vtrace", True),)))
    normalised = (("normalise_observations", True), ("normalise_rewards", True))
    switched += [Case(algo, "dict", FITS[algo][0], normalised) for algo in ("ppo", "dqn", "sac")]
    switched += [Case(algo, "vector", "discrete", (("memory", "lstm"),)) for algo in ("a2c", "ppo", "impala")]
    switched.append(Case("ppo", "masked", "discrete", (("memory", "gru"), *normalised)))
    return plain + others + masked + switched


CASES = _cases()


@cache
def assembled(case: Case) -> Assembly:
    """The case's algorithm, assembled."""
    cls = ALGORITHMS[case.algo]
    config = cls.Config(hidden=(8,), **{**SMALL[case.algo], **dict(case.settings)})
    algorithm = cls.compose(config, OBSERVATIONS[case.obs], ACTIONS[case.action])
    return assemble(algorithm, inputs_of(algorithm), algorithm.traced)


@cache
def built(case: Case, backend: str) -> Graph:
    return build(assembled(case), get_backend(backend), seed=3)


@cache
def compiled(case: Case, backend: str, api: str) -> Callable[..., Any]:
    return built(case, backend).function(api)


def root(case: Case) -> Algorithm:
    return assembled(case).root  # type: ignore[return-value]


def sizes(case: Case) -> dict[str, int]:
    """How long and how wide a batch of the case is."""
    plan = root(case).plan
    if not any(leaf.time for _, leaf in plan.batch_space(root(case).step_spaces).items()):
        return {"time": 1, "batch": getattr(plan, "batch_size", plan.batch_rows)}
    columns = getattr(plan, "episodes", plan.envs)
    return {"time": plan.batch_rows // columns, "batch": columns}


def batch_for(case: Case, seed: int = 0) -> tuple[dict[str, Any], Any]:
    """A batch that fits the case's plan, with ends of episodes in it, and the draws to learn from it."""
    algorithm, rng = root(case), np.random.default_rng(seed)
    batch = {}
    for name, space in algorithm.plan.batch_space(algorithm.step_spaces).spaces.items():
        leaf = next(leaf for _, leaf in space.items())
        lead = tuple(sizes(case)[rank] for rank in ("time", "batch") if getattr(leaf, rank))
        batch[name] = space.sample(rng, lead)
        if name in ("terminated", "truncated"):
            batch[name] = rng.random((*lead, *leaf.shape)) < 0.1
        if name == "mask":
            batch[name] = (rng.random((*lead, *leaf.shape)) < 0.9).astype(leaf.dtype)
        if name in ("weight", "discount"):
            batch[name] = np.where(rng.random(lead) < 0.2, 0.0, rng.random(lead)).astype(np.float32)
        if name == "log_prob":
            batch[name] = -rng.random(lead).astype(np.float32)
    if "bootstrap" in batch:
        batch["bootstrap"] *= batch["truncated"]
    for name in ("obs", "next_obs"):
        if case.obs == "masked" and name in batch:
            batch[name]["action_mask"][...] = True  # whatever was done was possible
    return batch, algorithm.draws(rng, batch)


def observations(case: Case, rng: np.random.Generator, lead: tuple[int, ...]) -> Any:
    """Observations with the leading sizes ``lead``; every mask leaves at least one action."""
    obs = root(case).observation_space.ranked(batch=True, time=len(lead) == 2).sample(rng, lead)
    if case.obs == "masked":
        obs["action_mask"][..., 1] |= ~obs["action_mask"].any(axis=-1)
    return obs


def no_memory(case: Case, rows: int) -> Any:
    """What acting carries before an episode's first step."""
    return with_scopes(root(case).memory.ranked(batch=True).zeros((rows,)), Params)
