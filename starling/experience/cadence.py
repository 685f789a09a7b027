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

    @abstractmethod
    def due(self, steps: int, ready: bool = True) -> Iterator[Round]:
        """The rounds that fall due up to ``steps``, each once."""

    @abstractmethod
    def state(self) -> Tree: ...

    @abstractmethod
    def restore(self, state: Tree) -> None: ...


class EachBatch(Cadence):
    """An update with every batch; its progress is that of the run when the batch began."""

    def __init__(self, total: int) -> None:
        self._total, self._before = total, 0

    def due(self, steps: int, ready: bool = True) -> Iterator[Round]:
        progress, self._before = min(1.0, self._before / self._total), steps
        if ready:
            yield Round(progress, 1)

    def state(self) -> Tree:
        return {"before": self._before}

    def restore(self, state: Tree) -> None:
        self._before = int(state["before"])


class EverySteps(Cadence):
    """``updates`` updates whenever the run's steps pass a multiple of ``every``, from step ``starts`` on.

    A round's progress is that of the run when the round before it fell due, so the first of a run has progress 0 and
    none has 1.
    """

    def __init__(self, total: int, every: int, updates: int = 1, starts: int = 0) -> None:
        self._total, self._every, self._updates, self._starts = total, every, updates, starts
        self._next = every

    def due(self, steps: int, ready: bool = True) -> Iterator[Round]:
        while self._next <= steps:
            now, self._next = self._next, self._next + self._every
            if ready and now >= self._starts:
                yield Round(min(1.0, (now - self._every) / self._total), self._updates)

    def state(self) -> Tree:
        return {"next": self._next}

    def restore(self, state: Tree) -> None:
        self._next = int(state["next"])
