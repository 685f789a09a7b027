"""Evaluations: returns of perturbed parameters. Only the seeds of perturbations and what they earned travel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from starling.core.errors import ConfigError
from starling.core.random import stream
from starling.core.spaces import Dict, Float, Int
from starling.core.trees import Tree, map_leaves
from starling.envs.protocol import Step
from starling.experience.cadence import EachBatch
from starling.experience.plan import Accumulator, Acted, Perturbable, Plan, StepSpaces, WholeFeed, equal_share

__all__ = ["Evaluations", "perturbation"]


def perturbation(seed: int, size: int) -> np.ndarray:
    """The direction that a seed stands for, standard normal [size]."""
    return stream(int(seed), "perturbation").standard_normal(size, dtype=np.float32)


@dataclass(frozen=True, kw_only=True)
class Evaluations(Plan):
    """Derivative-free: a batch is ``population`` evaluations, in pairs of a perturbation and its opposite."""

    envs: int  # that play with the same parameters; their returns are averaged
    population: int
    sigma: float  # size of perturbations

    evaluates: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.population % 2:
            raise ConfigError(f"population={self.population}; evaluations come in pairs: use an even number.")

    @property
    def batch_rows(self) -> int:
        return self.population

    def batch_space(self, spaces: StepSpaces) -> Dict:
        """[B]: the seed of a perturbation, its sign, and the return that it earned."""
        return Dict(seed=Int((), 0, 2**62, "int64"), sign=Float(), earned=Float()).ranked(batch=True)

    def shared(self, learners: int) -> Evaluations:
        pairs = equal_share("population", self.population, 2 * learners, f"{learners} learners in pairs")
        return replace(self, population=2 * pairs)

    def chunks(self, actors: int) -> int:
        equal_share("population", self.population, 2 * actors, f"{actors} actors in pairs")
        return self.population

    def envs_per_actor(self, chunks: int) -> int:
        return self.envs

    def cadence(self, total: int, workers: int = 1) -> EachBatch:
        return EachBatch(total)

    def accumulator(self, spaces: StepSpaces, envs: int, chunk: int, priorities: Any = None) -> EvaluationAccumulator:
        return EvaluationAccumulator(envs, self.sigma)

    def feed(self, spaces: StepSpaces, chunks: int, seed: int, index: int = 0) -> WholeFeed:
        return WholeFeed(chunks, lambda chunks: map_leaves(lambda *x: np.stack(x), *chunks))


class EvaluationAccumulator(Accumulator):
    """Every environment plays one episode with the same perturbed parameters."""

    restarts: ClassVar[bool] = True

    def __init__(self, envs: int, sigma: float) -> None:
        self._envs, self._sigma = envs, sigma
        self._seed, self._sign = 0, -1.0
        self._earned, self._over = np.zeros(envs), np.zeros(envs, np.bool_)

    def begin(self, policy: Perturbable, rng: np.random.Generator) -> None:
        if self._sign < 0:  # a new pair
            self._seed = int(rng.integers(2**62))
        self._sign = -self._sign
        seed, scale = self._seed, np.float32(self._sign * self._sigma)
        policy.perturb(lambda vector: vector + scale * perturbation(seed, vector.size))
        self._earned, self._over = np.zeros(self._envs), np.zeros(self._envs, np.bool_)

    @property
    def full(self) -> bool:
        return bool(self._over.all())

    def add(self, obs: Tree, acted: Acted, step: Step, bootstrap: np.ndarray | None) -> None:
        self._earned += np.where(self._over | ~step.valid, 0.0, step.reward)
        self._over |= (step.terminated | step.truncated) & step.valid

    def take(self) -> Tree:
        earned = np.float32(self._earned.mean())
        return {"seed": np.int64(self._seed), "sign": np.float32(self._sign), "earned": earned}

    def blank(self) -> Tree:
        return {"seed": np.int64(0), "sign": np.float32(0), "earned": np.float32(0)}

    def state(self) -> Tree:
        return {"seed": self._seed, "sign": self._sign}

    def restore(self, state: Tree) -> None:
        self._seed, self._sign = int(state["seed"]), float(state["sign"])
