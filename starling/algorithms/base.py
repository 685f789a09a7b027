"""What an algorithm is: a root component plus a data plan. It says what is computed, never where.

    algorithm = PPO.compose(config, observation_space, action_space, total_steps)
    state = algorithm.init(params)                                      # parameters, optimiser, targets
    while True:
        out = algorithm.act(state["params"], obs, noise, explore)       # {"action": …} and what else to remember
        state, metrics = algorithm.update(state, batch, draws)          # gradients + apply_gradients, once or often

``act``, ``greedy`` and the losses read parameters ``p``; ``gradients``, ``apply_gradients`` and ``update`` take the
learner's whole state. All are compiled; noise comes in as arrays, and ``count`` is the
number of gradient steps so far. Losses are averaged over the batch, so gradients of
parts of a batch can be averaged.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from starling.algorithms.plans import DataPlan, Replay
from starling.backends import ops
from starling.components.base import Component
from starling.core.errors import ConfigError
from starling.core.params import Params
from starling.core.spaces import Dict, Float, Space, space_of
from starling.core.trees import Tree, map_leaves

__all__ = ["Algorithm", "check_range", "inputs_of"]


def check_range(config: Any, **bounds: tuple[float, float]) -> None:
    """Refuse a setting outside [low, high]; every number of a tuple counts."""
    for name, (low, high) in bounds.items():
        value = getattr(config, name)
        if not all(low <= number <= high for number in (value if isinstance(value, tuple) else (value,))):
            raise ConfigError(f"{name}={value}; it must be from {low:g} to {high:g}.")


class Algorithm(Component):
    """See the top of this file. Subclasses are final."""

    observation_space: Space  # of one environment
    action_space: Space  # as the algorithm sees it
    envs: int  # environments that one batch comes from
    config: Any

    name: ClassVar[str]
    Config: ClassVar[type]
    extras: ClassVar[Dict] = Dict()  # what ``act`` returns beside the action
    shared: ClassVar[tuple[str, ...]] = ("envs",)  # settings that several learners divide among them
    prioritizes: ClassVar[bool] = False  # whether it has ``priorities``, and metrics with "priorities" [B]
    pace_settings: ClassVar[tuple[str, ...]] = ()  # steps between rounds of updates, updates in a round
    exploration_settings: ClassVar[tuple[str, ...]] = ()  # what ``ladder`` takes the place of

    @classmethod
    @abstractmethod
    def compose(cls, config: Any, obs: Space, action: Space, envs: int, total_steps: int) -> Algorithm:
        """The algorithm for these spaces; ``total_steps`` of the environments is what schedules run over."""

    @property
    @abstractmethod
    def plan(self) -> DataPlan: ...

    @abstractmethod
    def init(self, params: Params) -> Tree:
        """The learner's state: ``params`` and what goes with them."""

    @abstractmethod
    def act(self, p: Params, obs: Any, noise: Any, explore: Any) -> dict[str, Any]:
        """Choose actions [B]: ``{"action": …}`` plus what learning needs to know of the choice."""

    @abstractmethod
    def greedy(self, p: Params, obs: Any) -> Any:
        """The actions believed best."""

    @property
    def corrects(self) -> bool:
        """Whether it may learn from rollouts of older weights than it has."""
        return False

    def prepare(self, state: Tree, batch: Tree) -> Tree:
        """What the gradient steps of one ``update`` have in common; by default the batch."""
        return batch

    @abstractmethod
    def gradients(self, state: Tree, prepared: Tree, draws: Tree) -> tuple[Tree, Tree]:
        """Gradients of the parameters for one step, and metrics."""

    @abstractmethod
    def apply_gradients(self, state: Tree, gradients: Tree) -> Tree:
        """The state after one step along ``gradients``."""

    def update(self, state: Tree, batch: Tree, draws: Tree) -> tuple[Tree, Tree]:
        """The state after learning from a batch, and metrics; by default one gradient step."""
        gradients, metrics = self.gradients(state, self.prepare(state, batch), draws)
        return self.apply_gradients(state, gradients), metrics

    def update_often(self, state: Tree, batch: Tree, draws: Tree) -> tuple[Tree, Tree]:
        """``update`` with one batch after another, stacked along the first axis; the metrics are means."""
        xp = ops(batch["reward"])
        state, metrics = xp.scan(lambda state, step: self.update(state, *step), state, (batch, draws))
        return state, map_leaves(xp.mean, metrics)

    @abstractmethod
    def act_noise(self, rng: np.random.Generator, lead: tuple[int, ...]) -> np.ndarray:
        """Noise for ``act`` with the leading sizes ``lead``."""

    @abstractmethod
    def draws(self, rng: np.random.Generator, rows: int) -> Tree:
        """Randomness for one ``update`` from a batch of ``rows`` steps."""

    def steps_of(self, draws: Tree) -> list[Tree]:
        """The draws of each gradient step of one ``update``."""
        return [draws]

    @classmethod
    def share(cls, config: Any, learners: int) -> Any:
        """The settings for one of several learners: its part of each batch."""
        for name in cls.shared:
            if getattr(config, name) % learners:
                raise ConfigError(
                    f"{name}={getattr(config, name)} cannot be shared equally by {learners} roles; use a multiple."
                )
        return dataclasses.replace(config, **{name: getattr(config, name) // learners for name in cls.shared})

    @classmethod
    def paced(cls, config: Any, samples_per_insert: float) -> Any:
        """The settings with the pace at which each transition is drawn so often, which schedules count on."""
        every, updates = cls.pace_settings
        period = Fraction(config.batch_size / samples_per_insert).limit_denominator(100)
        return dataclasses.replace(config, **{every: max(1, period.numerator), updates: period.denominator})

    def ladder(self, actor: int, actors: int) -> float | None:
        """``explore`` of one actor among many that explore differently; None where they do not."""
        return None

    @property
    def hold_noise(self) -> int:
        """Steps of an environment that one draw of ``act_noise`` lasts."""
        return 1

    def exploration(self, steps: int) -> float:
        """``explore`` for ``act`` after so many environment steps."""
        return 1.0

    def to_env(self, action: np.ndarray) -> np.ndarray:
        """The action as the environment takes it."""
        return action


def inputs_of(algorithm: Algorithm) -> dict[str, Space]:
    """The root's input spaces, by argument name: all that assembling needs."""
    obs, action = algorithm.observation_space, algorithm.action_space
    rng = np.random.default_rng(0)
    if isinstance(algorithm.plan, Replay):
        draws = space_of(map_leaves(lambda x: x[0], algorithm.draws(rng, 1))).ranked(batch=True)
    else:
        draws = space_of(algorithm.draws(rng, algorithm.envs * algorithm.plan.length))
    return {
        "obs": obs.ranked(batch=True),
        "noise": space_of(algorithm.act_noise(rng, ())).ranked(batch=True),
        "explore": Float(),
        "count": Float(),
        "batch": algorithm.plan.batch_space(obs, action, algorithm.extras),
        "draws": draws,
    }
