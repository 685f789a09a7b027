"""What plans share that keep items in a table and draw batches from it again and again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from starling.components.schedules import Schedule
from starling.core.errors import ConfigError
from starling.experience.cadence import EverySteps
from starling.experience.plan import Plan

__all__ = ["Drawing", "Replayed"]


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

    @property
    def prioritizes(self) -> bool:
        return bool(self.alpha)

    @property
    def batch_rows(self) -> int:
        return self.batch_size

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
        if self.batch_size % learners:
            raise ConfigError(
                f"batch_size={self.batch_size} cannot be shared equally by {learners} learners; "
                f"use a multiple, such as {learners * -(-self.batch_size // learners)}."
            )
        rows = self.batch_size // learners
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
