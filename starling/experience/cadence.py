"""Cadence: when updates fall due. It is counted here, once, and the same in every formation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

from starling.core.trees import Tree

__all__ = ["Cadence", "EachBatch", "EverySteps", "Round"]


class Round(NamedTuple):
    """Updates that fall due together."""

    progress: float  # of the run, from 0 to 1: what schedules run over
    updates: int


class Cadence(ABC):
    """Says after so many steps of the run which rounds of updates fall due.

        for round in cadence.due(steps):
            learn(round)

    ``ready`` is False where there is nothing to learn from yet: what falls due then is skipped.
    """

    counted: int = 0  # steps of the run up to which rounds have fallen due

    @abstractmethod
    def due(self, steps: int, ready: bool = True) -> Iterator[Round]:
        """The rounds that fall due up to ``steps``, each once."""

    def state(self) -> Tree:
        return {"counted": self.counted}

    def restore(self, state: Tree) -> None:
        self.counted = int(state["counted"])


class EachBatch(Cadence):
    """An update with every batch; its progress is that of the run when the batch began."""

    def __init__(self, total: int) -> None:
        self._total = total

    def due(self, steps: int, ready: bool = True) -> Iterator[Round]:
        before, self.counted = self.counted, steps
        if ready:
            yield Round(min(1.0, before / self._total), 1)


class EverySteps(Cadence):
    """``updates`` updates whenever the run's steps pass a multiple of ``every``, from step ``starts`` on.

    A round's progress is that of the run when the round before it fell due, so the first of a run has progress 0 and
    none has 1.
    """

    def __init__(self, total: int, every: int, updates: int = 1, starts: int = 0) -> None:
        self._total, self._every, self._updates, self._starts = total, every, updates, starts

    def due(self, steps: int, ready: bool = True) -> Iterator[Round]:
        while self.counted + self._every <= steps:
            before, self.counted = self.counted, self.counted + self._every
            if ready and self.counted >= self._starts:
                yield Round(min(1.0, before / self._total), self._updates)
