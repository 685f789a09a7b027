"""Experience from a data set of episodes: alone, where nobody acts, or mixed into what actors send."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from starling.core.errors import DataError
from starling.core.spaces import Dict, Float
from starling.core.trees import Tree, items, map_leaves
from starling.data.adders.chunks import Chunk
from starling.data.adders.nstep import NStepAdder, transition_signature
from starling.experience.cadence import EverySteps, Round
from starling.experience.plan import Accumulator, Batch, Feed, Plan, StepSpaces
from starling.experience.replayed import Drawing
from starling.experience.transitions import Transitions

__all__ = ["DataSet", "Demonstrated"]

READ = 1_024  # items that are put into a table at a time


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

    def batch_space(self, spaces: StepSpaces) -> Dict:
        """[B] everywhere, as of transitions."""
        item = transition_signature(spaces.obs, spaces.action).spaces
        return Dict({**item, "weight": Float()}).ranked(batch=True)

    def shared(self, learners: int) -> DataSet:
        return replace(self, batch_size=self.batch_size // learners)

    def cadence(self, total: int, workers: int = 1) -> EverySteps:
        return EverySteps(total, 1)

    def accumulator(self, spaces: StepSpaces, envs: int, chunk: int, priorities: Any = None) -> Accumulator:
        raise TypeError("nobody acts where experience comes from a data set")

    def feed(self, spaces: StepSpaces, chunks: int, seed: int, index: int = 0) -> Feed:
        from starling.experience.tables import TableFeed

        signature = transition_signature(spaces.obs, spaces.action)
        rows = list(_rows(self.path, spaces, signature, self.n_step, self.gamma))
        size = sum(count for _, count in rows)
        feed = TableFeed(signature, Drawing(capacity=size, batch_size=self.batch_size), seed, index, 0)
        for part, _ in rows:
            feed.insert(part)
        return feed


def _rows(path: str, spaces: StepSpaces, signature: Dict, n: int, gamma: float) -> Iterator[tuple[Tree, int]]:
    """The transitions of a data set's episodes; refuses one of other spaces."""
    from starling.data.datasets.episodes import read_episodes, replay_episode
    from starling.data.datasets.files import Dataset

    held = Dataset(path).signature.spaces
    for name, space in (("obs", spaces.obs), ("action", spaces.action)):
        if name in held and _layout(held[name]) != _layout(space):
            raise DataError(f"{path} has {name} {held[name]}; the environment's is {space}. Take another data set.")
    chunk = Chunk(signature, READ)
    adder = NStepAdder(chunk, 1, n, gamma)
    found = 0
    for episode in read_episodes(path):
        for at, leaf in (*items(episode.obs, "obs"), *items(episode.action, "action"), ("reward", episode.reward)):
            if not np.isfinite(leaf).all():
                raise DataError(f"{path}: {at} holds a number that is not finite; mend the data set.")
        replay_episode(replace(episode, reward=np.asarray(episode.reward, np.float32)), adder)
        if len(chunk) >= READ:
            found += len(chunk)
            yield chunk.take()
    found += len(chunk)
    if not found:
        raise DataError(f"{path} holds no episodes; there is nothing to learn from.")
    if len(chunk):
        yield chunk.take()


def _layout(space: Any) -> list[tuple[str, tuple[int, ...], str]]:
    return [(path, leaf.shape, leaf.dtype) for path, leaf in space.items()]


@dataclass(frozen=True, kw_only=True)
class Demonstrated(Transitions):
    """Transitions of which a share ``demonstrated`` of every batch comes from the data set at ``path``."""

    path: str
    demonstrated: float

    @classmethod
    def of(cls, own: Transitions, path: str, demonstrated: float) -> Demonstrated:
        """The plan ``own`` with demonstrations mixed in."""
        return cls(**{f.name: getattr(own, f.name) for f in fields(own)}, path=path, demonstrated=demonstrated)

    def feed(self, spaces: StepSpaces, chunks: int, seed: int, index: int = 0) -> Feed:
        from starling.experience.tables import TableFeed

        shown = round(self.demonstrated * self.batch_size)
        own = Transitions(**{f.name: getattr(self, f.name) for f in fields(Transitions)})
        signature = self.signature(spaces)
        plain = transition_signature(spaces.obs, spaces.action)
        rows = list(_rows(self.path, spaces, plain, self.n_step, self.gamma))
        size = sum(count for _, count in rows)
        demos = TableFeed(signature, replace(self.drawing, capacity=size), seed, index + 1_000, 0)
        blank = signature.ranked(batch=True)
        for part, count in rows:
            demos.insert({**blank.zeros((count,)), "version": np.full(count, -1, np.int64), **part})
        return MixedFeed(own.feed(spaces, chunks, seed, index), demos, self.batch_size - shown, shown)


class MixedFeed(Feed):
    """Every batch has rows of both: first of what actors sent, then of the data set."""

    def __init__(self, own: Any, demos: Any, own_rows: int, demo_rows: int) -> None:
        self._own, self._demos, self._rows, self._shown = own, demos, own_rows, demo_rows
        self.chunks = own.chunks

    def add(self, chunks: list[Tree]) -> None:
        self._own.add(chunks)

    @property
    def ready(self) -> bool:
        return self._own.ready

    @property
    def counts(self) -> Any:
        return self._own.counts

    def batches(self, round: Round) -> Iterator[Batch]:
        for _ in range(round.updates):
            own, shown = self._own.draw(self._rows, round.progress), self._demos.draw(self._shown, round.progress)
            data = map_leaves(lambda *x: np.concatenate(x), own.data, shown.data)
            yield Batch(data, 1, own.versions, (own, shown))

    def lent(self, batch: Batch, wait: Callable[[], None]) -> None:
        """Batches are copies: nothing is lent."""

    def learned(self, batch: Batch, priorities: np.ndarray) -> None:
        own, shown = batch.keys
        self._own.learned(own, priorities[: self._rows])
        self._demos.learned(shown, priorities[self._rows :])

    def state(self) -> Tree:
        return {"own": self._own.state(), "demos": self._demos.state()}

    def restore(self, state: Tree) -> None:
        self._own.restore(state["own"])
        self._demos.restore(state["demos"])
