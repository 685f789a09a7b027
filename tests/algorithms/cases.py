"""Small instances of every algorithm, and batches for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from starling.algorithms import ALGORITHMS
from starling.algorithms.base import Algorithm, inputs_of
from starling.algorithms.plans import Replay
from starling.backends import get_backend
from starling.components.graph.assembly import Assembly, assemble
from starling.components.graph.build import Graph, build
from starling.core.spaces import Bool, Dict, Float, Int, Space

SMALL: dict[str, dict[str, Any]] = {
    "a2c": {"envs": 2, "rollout": 4},
    "dqn": {"batch_size": 8, "learning_starts": 8, "capacity": 64},
    "impala": {"envs": 2, "rollout": 4},
    "ppo": {"envs": 2, "rollout": 4, "minibatch": 4, "epochs": 2},
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
    "dqn": ("discrete",),
    "impala": ("discrete", "continuous", "several", "switches"),
    "ppo": ("discrete", "continuous", "several", "switches"),
    "sac": ("continuous",),
}


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
    switched.append(Case("ppo", "vector", "discrete", (("vtrace", True),)))
    return plain + others + masked + switched


CASES = _cases()


@cache
def assembled(case: Case) -> Assembly:
    """The case's algorithm, assembled."""
    cls = ALGORITHMS[case.algo]
    config = cls.Config(hidden=(8,), **{**SMALL[case.algo], **dict(case.settings)})
    algorithm = cls.compose(config, OBSERVATIONS[case.obs], ACTIONS[case.action], config.envs, 1_000)
    return assemble(algorithm, inputs_of(algorithm))


@cache
def built(case: Case, backend: str) -> Graph:
    return build(assembled(case), get_backend(backend), seed=3)


@cache
def compiled(case: Case, backend: str, api: str) -> Callable[..., Any]:
    return built(case, backend).function(api)


def root(case: Case) -> Algorithm:
    return assembled(case).root  # type: ignore[return-value]


def batch_for(case: Case, seed: int = 0) -> tuple[dict[str, Any], Any]:
    """A batch that fits the case's data plan, with ends of episodes in it, and the draws to learn from it."""
    algorithm, rng = root(case), np.random.default_rng(seed)
    plan = algorithm.plan
    if isinstance(plan, Replay):
        lead: tuple[int, ...] = (plan.batch_size,)
    else:
        lead = (plan.length, algorithm.envs)
    batch = {
        "obs": observations(case, rng, lead),
        "action": algorithm.action_space.ranked(batch=True, time=len(lead) == 2).sample(rng, lead),
        "reward": rng.standard_normal(lead).astype(np.float32),
        "discount": np.where(rng.random(lead) < 0.2, 0.0, plan.gamma).astype(np.float32),
        "next_obs": observations(case, rng, lead[-1:]),
    }
    if isinstance(plan, Replay):
        batch["weight"] = rng.random(lead).astype(np.float32)
    else:
        batch["mask"] = (rng.random(lead) < 0.9).astype(np.float32)
        batch["log_prob"] = -rng.random(lead).astype(np.float32)
    if "masked" in case.obs:
        batch["obs"]["action_mask"][...] = True  # whatever was done was possible
    return batch, algorithm.draws(rng, int(np.prod(lead)))


def observations(case: Case, rng: np.random.Generator, lead: tuple[int, ...]) -> Any:
    """Observations with the leading sizes ``lead``; every mask leaves at least one action."""
    obs = root(case).observation_space.ranked(batch=True, time=len(lead) == 2).sample(rng, lead)
    if case.obs == "masked":
        obs["action_mask"][..., 1] |= ~obs["action_mask"].any(axis=-1)
    return obs
