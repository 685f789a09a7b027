"""Experience from a data set of episodes: alone, where nobody acts, or mixed into what actors send."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from starling.core.spaces import Dict
from starling.core.trees import Tree, map_leaves
from starling.data.adders.nstep import transition_signature
from starling.experience.cadence import EverySteps, Round
from starling.experience.plan import Accumulator, Batch, Feed, Plan, StepSpaces, equal_share
from starling.experience.replayed import Drawing, drawn_space
from starling.experience.transitions import Transitions

if TYPE_CHECKING:
    from starling.experience.tables import TableFeed

__all__ = ["DataSet", "Demonstrated"]


@dataclass(frozen=True, kw_only=True)
class DataSet(Plan):
    """Offline: transitions of the episodes in a directory, drawn again and again; nobody acts."""

    path: str
    batch_size: int
    gamma: float = 1.0
    n_step: int = 1
    envs: int = 1

    acts: ClassVar[bool] = False
    replays: ClassVar[bool] = True

    @property
    def batch_rows(self) -> int:
        return self.batch_size

    def signature(self, spaces: StepSpaces) -> Dict:
        """An item: a transition, without a version, since nobody acted."""
        return transition_signature(spaces.obs, spaces.action)

    def batch_space(self, spaces: StepSpaces) -> Dict:
        return drawn_space(self.signature(spaces))

    def shared(self, learners: int) -> DataSet:
        return replace(self, batch_size=equal_share("batch_size", self.batch_size, learners, f"{learners} learners"))

    def cadence(self, total: int, workers: int = 1) -> EverySteps:
        return EverySteps(total, 1)

    def accumulator(self, spaces: StepSpaces, envs: int, chunk: int, priorities: Any = None) -> Accumulator:
        raise TypeError("nobody acts where experience comes from a data set")

    def feed(self, spaces: StepSpaces, chunks: int, seed: int, index: int = 0) -> TableFeed:
        return _loaded(self, spaces, Drawing(capacity=1, batch_size=self.batch_size), seed, index)

    def reserves(self, spaces: StepSpaces) -> dict[str, int]:
        return {"data set": _size_of(self.path), "batch": self.batch_size * self.signature(spaces).nbytes}


def _size_of(path: str) -> int:
    """Bytes of the files below a directory: about what its episodes take as transitions."""
    return sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())


def _loaded(plan: DataSet | Demonstrated, spaces: StepSpaces, drawing: Drawing, seed: int, index: int) -> TableFeed:
    """A feed with room for just what the plan's data set holds; what else an item has is zeros."""
    from starling.data.datasets.transitions import read_transitions
    from starling.experience.tables import TableFeed

    parts = list(read_transitions(plan.path, spaces.obs, spaces.action, plan.n_step, plan.gamma))
    counts = [len(part["reward"]) for part in parts]
    signature = plan.signature(spaces)
    feed = TableFeed(signature, replace(drawing, capacity=sum(counts)), seed, index, chunks=0)
    for part, count in zip(parts, counts):
        feed.insert({**signature.ranked(batch=True).zeros((count,)), **part})
    return feed


@dataclass(frozen=True, kw_only=True)
class Demonstrated(Transitions):
    """Transitions of which a share ``demonstrated`` of every batch comes from the data set at ``path``."""

    path: str
    demonstrated: float

    @classmethod
    def of(cls, own: Transitions, path: str, demonstrated: float) -> Demonstrated:
        """The plan ``own`` with demonstrations mixed in."""
        return cls(**{f.name: getattr(own, f.name) for f in fields(own)}, path=path, demonstrated=demonstrated)

    def feed(self, spaces: StepSpaces, chunks: int, seed: int, index: int = 0) -> MixedFeed:
        shown = round(self.demonstrated * self.batch_size)
        own: Any = super().feed(spaces, chunks, seed, index)
        demos = _loaded(self, spaces, self.drawing, seed, index + 1_000)
        return MixedFeed(own, demos, self.batch_size - shown, shown)

    def reserves(self, spaces: StepSpaces) -> dict[str, int]:
        return {**super().reserves(spaces), "data set": _size_of(self.path)}


class MixedFeed(Feed):
    """Every batch has rows of both: first of what actors sent, then of the data set. It is a copy: nothing is lent."""

    def __init__(self, own: TableFeed, demos: TableFeed, own_rows: int, demo_rows: int) -> None:
        self._own, self._demos, self._rows, self._shown = own, demos, own_rows, demo_rows
        self.chunks = own.chunks

    def add(self, chunks: list[Tree]) -> None:
        self._own.add(chunks)

    @property
    def ready(self) -> bool:
        return self._own.ready

    def batches(self, round: Round) -> Iterator[Batch]:
        for _ in range(round.updates):
            own, shown = self._own.draw(self._rows, round.progress), self._demos.draw(self._shown, round.progress)
            data = map_leaves(lambda *x: np.concatenate(x), own.data, shown.data)
            yield Batch(data, 1, own.versions, (own, shown))

    def learned(self, batch: Batch, priorities: np.ndarray) -> None:
        own, shown = batch.keys
        self._own.learned(own, priorities[: self._rows])
        self._demos.learned(shown, priorities[self._rows :])

    def state(self) -> Tree:
        return {"own": self._own.state(), "demos": self._demos.state()}

    def restore(self, state: Tree) -> None:
        self._own.restore(state["own"])
        self._demos.restore(state["demos"])
