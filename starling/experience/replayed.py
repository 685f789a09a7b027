"""What plans share that keep items in a table and draw batches from it again and again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from starling.components.schedules import Schedule
from starling.core.errors import ConfigError
from starling.core.spaces import Dict, Float
from starling.core.trees import Tree
from starling.data.adders.base import Adder
from starling.data.adders.chunks import Chunk
from starling.data.adders.returns import ReturnsSoFar
from starling.data.frames.images import least_bytes
from starling.envs.protocol import Step
from starling.experience.cadence import EverySteps
from starling.experience.plan import Accumulator, Acted, Feed, Plan, StepSpaces, equal_share

__all__ = ["Drawing", "Priorities", "Replayed", "RowAccumulator", "drawn_space"]

Priorities = Callable[[Tree], np.ndarray]  # of a batch: how much each item has to teach


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """How batches are drawn from a table."""

    capacity: int  # items
    batch_size: int
    alpha: float = 0.0  # exponent of priorities; 0 draws uniformly
    beta: Schedule | None = None  # exponent of importance weights, over the run's progress


@dataclass(frozen=True, kw_only=True)
class Replayed(Plan):
    """Learns from its table every so many steps of the run."""

    envs: int
    capacity: int  # items kept
    batch_size: int
    learning_starts: int  # steps of the run before the first update
    every: int = 1  # steps of the run between rounds of updates
    updates: int = 1  # updates in a round
    alpha: float = 0.0  # exponent of priorities; 0 draws uniformly
    beta: Schedule | None = None  # exponent of importance weights, over the run's progress

    replays: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 1 <= self.batch_size <= self.capacity:
            raise ConfigError(f"batch_size={self.batch_size}; it must be from 1 to capacity={self.capacity}.")

    @abstractmethod
    def signature(self, spaces: StepSpaces) -> Dict:
        """An item: the version of the weights that acted travels in each."""

    @property
    def prioritizes(self) -> bool:
        return bool(self.alpha)

    @property
    def batch_rows(self) -> int:
        return self.batch_size

    def batch_space(self, spaces: StepSpaces) -> Dict:
        return drawn_space(self.signature(spaces))

    @property
    def drawing(self) -> Drawing:
        return Drawing(capacity=self.capacity, batch_size=self.batch_size, alpha=self.alpha, beta=self.beta)

    @property
    def samples_per_insert(self) -> float:
        """How often an item is drawn, on average."""
        return self.batch_size * self.updates / self.every

    def shared(self, learners: int) -> Replayed:
        return self.buffered(learners, learners)

    def buffered(self, learners: int, buffers: int) -> Replayed:
        rows = equal_share("batch_size", self.batch_size, learners, f"{learners} learners")
        return replace(self, batch_size=rows, capacity=max(rows, self.capacity // buffers))

    @property
    def first_items(self) -> int:
        """Items that are there when the first update falls due, about."""
        return max(1, self.learning_starts)

    def enough(self, steps: int) -> bool:
        return steps >= max(self.learning_starts, self.batch_size)

    def boundary(self, steps: int, workers: int = 1) -> int:
        every = self.every * workers
        return (steps // every + 1) * every

    def cadence(self, total: int, workers: int = 1) -> EverySteps:
        return EverySteps(total, self.every * workers, self.updates, max(self.learning_starts, self.batch_size))

    def feed(self, spaces: StepSpaces, chunks: int, seed: int, index: int = 0) -> Feed:
        from starling.experience.tables import TableFeed  # needs numba, which actors do without

        return TableFeed(self.signature(spaces), self.drawing, seed, index, chunks)

    def reserves(self, spaces: StepSpaces) -> dict[str, int]:
        signature = self.signature(spaces)
        return {**least_bytes(signature, self.capacity), "batch": self.batch_size * signature.nbytes}


def drawn_space(signature: Dict) -> Dict:
    """[B] everywhere: the items without their version, and ``weight``, the importance weight of each."""
    item = {name: space for name, space in signature.spaces.items() if name != "version"}
    return Dict({**item, "weight": Float()}).ranked(batch=True)


class RowAccumulator(Accumulator):
    """The items that up to ``steps`` steps of every environment complete, as rows.

    The chunk has room for what those steps may complete; where they complete more, it is full before.
    """

    def __init__(
        self,
        adder: Adder,
        chunk: Chunk,
        steps: int,
        priorities: Priorities | None = None,
        returns: ReturnsSoFar | None = None,
    ) -> None:
        self._adder, self._chunk, self._rows = adder, chunk, chunk.rows
        self._priorities, self._returns = priorities, returns
        self._limit, self._steps = steps, 0

    @property
    def full(self) -> bool:
        return self._steps >= self._limit or len(self._chunk) > self._rows - self._adder.num_envs

    def add(self, obs: Tree, acted: Acted, step: Step, bootstrap: np.ndarray | None) -> None:
        self._adder.version = acted.version
        extras, ends = acted.extras, (step.reward, step.terminated, step.truncated)
        if acted.memory:
            extras = {**extras, "memory": dict(acted.memory)}
        if self._returns is not None:
            extras = {**extras, "discounted_return": self._returns.after(*ends, step.valid)}
        self._adder.add(obs, acted.action, extras, *ends, step.obs, step.final_obs, step.valid)
        self._steps += 1

    def take(self) -> Tree:
        rows, count = self._chunk.take()
        self._steps = 0
        if self._priorities is not None:
            batch = self._chunk.padded(rows, self._rows)  # of one size, so that nothing is compiled anew
            del batch["version"]
            batch["weight"] = np.ones(self._rows, np.float32)
            rows["priority"] = np.asarray(self._priorities(batch), np.float32)[:count]
        return {"rows": np.int64(count), "items": rows}

    def blank(self) -> Tree:
        items = self._chunk.blank(self._rows)
        if self._priorities is not None:
            items["priority"] = np.zeros(self._rows, np.float32)
        return {"rows": np.int64(0), "items": items}

    def state(self) -> Tree:
        returns = {} if self._returns is None else {"returns": self._returns.state()}
        return {"adder": self._adder.state(), **returns}

    def restore(self, state: Tree) -> None:
        self._adder.restore(state["adder"])
        if self._returns is not None:
            self._returns.restore(state["returns"])
