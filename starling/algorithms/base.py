"""What an algorithm is: a root component plus a plan. It says what is computed, never where.

    algorithm = PPO.compose(config, observation_space, action_space)
    state = algorithm.init(params)                                      # parameters, and what goes with them
    while learning:
        choice = algorithm.act(state["params"], obs, memory, noise, explore)
        ...                                                             # the plan makes batches of what follows
        state, learned = algorithm.update(state, batch, draws)

``act``, ``greedy`` and what else begins with ``p`` read parameters; ``update`` takes the learner's whole state. All are
compiled; randomness comes in as arrays (``noise``, ``draws``), and ``state["progress"]`` is how far the run has come,
from 0 to 1, for schedules. Whether an algorithm acts with memory, what it remembers of a choice and what experience it
learns from are properties of it, and everything else follows from them.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from starling.backends import ops
from starling.components.base import Component
from starling.components.graph.shapes import SIZES
from starling.core.params import Params
from starling.core.spaces import Dict, Float, Space, space_of
from starling.core.trees import Tree, map_leaves
from starling.experience.plan import Plan, StepSpaces

__all__ = ["Algorithm", "Choice", "Learned", "inputs_of"]


class Choice(NamedTuple):
    """What was chosen for a batch of observations."""

    action: Any  # [B, …]
    memory: Tree  # after this step, [B, …]; empty without memory
    extras: dict[str, Any]  # what learning needs to know of the choice, [B, …]


class Learned(NamedTuple):
    """What an update, or a loss, found out beside the new state."""

    metrics: Tree  # numbers by name
    priorities: Any = None  # [B]: how much each row of the batch still has to teach, for a plan that prioritizes
    statistics: Tree = None  # what no gradient moves, of this batch: to be merged into the state


class Algorithm(Component):
    """See the top of this file. Most algorithms follow gradients: see ``GradientAlgorithm``."""

    observation_space: Space  # of one environment
    action_space: Space  # as the algorithm sees it
    config: Any

    name: ClassVar[str]
    Config: ClassVar[type]
    traced: ClassVar[tuple[str, ...]] = ("act", "greedy")  # the APIs that assembling runs

    @classmethod
    @abstractmethod
    def compose(cls, config: Any, obs: Space, action: Space) -> Algorithm:
        """The algorithm for these spaces."""

    @property
    @abstractmethod
    def plan(self) -> Plan:
        """What experience it learns from, and when."""

    @property
    def memory(self) -> Dict:
        """What acting carries from one step to the next, of one environment."""
        return Dict()

    @property
    def extras(self) -> Dict:
        """What a choice has beside the action, of one environment."""
        return Dict()

    @property
    def step_spaces(self) -> StepSpaces:
        """What a plan must know of one step."""
        return StepSpaces(self.observation_space, self.action_space, self.extras, self.memory)

    @property
    def corrects(self) -> bool:
        """Whether it may learn from rollouts of older weights than it has."""
        return False

    @property
    def many_steps(self) -> bool:
        """Whether an update takes several gradient steps: then ``draws`` has [steps, rows, …] of them."""
        return False

    @property
    def step_rows(self) -> int:
        """Rows that one gradient step learns from."""
        return self.plan.batch_rows

    @property
    def exchanges_gradients(self) -> bool:
        """Whether its updates consist of gradient steps, so that workers and servers can share them."""
        return False

    @abstractmethod
    def init(self, params: Params) -> Tree:
        """The learner's state: ``params`` and what goes with them."""

    @abstractmethod
    def act(self, p: Params, obs: Any, memory: Tree, noise: Any, explore: Any) -> Choice:
        """Choose actions for observations [B, …]; ``explore`` [B] says how much to explore."""

    @abstractmethod
    def greedy(self, p: Params, obs: Any, memory: Tree) -> Choice:
        """The actions believed best."""

    @abstractmethod
    def update(self, state: Tree, batch: Tree, draws: Tree) -> tuple[Tree, Learned]:
        """The state after learning from a batch."""

    def update_at(self, state: Tree, batch: Tree, draws: Tree, progress: Any) -> tuple[Tree, Learned]:
        """``update`` when the run has come so far."""
        return self.update({**state, "progress": progress}, batch, draws)

    def update_often(self, state: Tree, batch: Tree, draws: Tree, progress: Any) -> tuple[Tree, Learned]:
        """``update_at`` with one batch after another, stacked along the first axis; what they learned are means."""
        xp = ops(progress)
        before = {**state, "progress": progress}
        state, learned = xp.scan(lambda state, step: self.update(state, *step), before, (batch, draws))
        return state, map_leaves(lambda x: xp.mean(x, axis=0), learned)

    @abstractmethod
    def act_noise(self, rng: np.random.Generator, lead: tuple[int, ...]) -> np.ndarray:
        """Noise for ``act`` with the leading sizes ``lead``."""

    @property
    def hold_noise(self) -> int:
        """Steps of an environment that one draw of ``act_noise`` lasts."""
        return 1

    def draws(self, rng: np.random.Generator, batch: Tree) -> Tree:
        """Randomness for one ``update`` from a batch; NumPy arrays."""
        return {}

    def exploration(self, progress: float, rows: np.ndarray, total: int) -> Any:
        """``explore`` for the environments numbered ``rows`` among the ``total`` of the run: a number, or [B]."""
        return 1.0

    def to_env(self, action: np.ndarray) -> np.ndarray:
        """The action as the environment takes it."""
        return action


def inputs_of(algorithm: Algorithm) -> dict[str, Space]:
    """The root's input spaces, by argument name: all that assembling needs."""
    rng, spaces = np.random.default_rng(0), algorithm.step_spaces
    batch = algorithm.plan.batch_space(spaces)
    draws = algorithm.draws(rng, batch.zeros_with(SIZES))
    if algorithm.many_steps:  # a minibatch is assembled with the size of a batch: so its rows are known as rows
        draws = map_leaves(lambda x: np.resize(x, (len(x), SIZES["batch"], *x.shape[2:])), draws)
    return {
        "obs": spaces.obs.ranked(batch=True),
        "memory": spaces.memory.ranked(batch=True),
        "noise": space_of(algorithm.act_noise(rng, ())).ranked(batch=True),
        "explore": Float().ranked(batch=True),
        "batch": batch,
        "draws": space_of(draws),
    }
