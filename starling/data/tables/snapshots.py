"""Copy-on-write rows: a frozen view of rows that others go on writing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from starling.data.tables.copy_on_write import FrozenArrays

__all__ = ["Frozen", "Snapshot"]

CHUNK = 4_000_000  # bytes of copied rows that are allocated at once


class Snapshot:
    """Rows 0 … ``extent`` − 1 of some arrays as they are at one moment.

    Made ahead, because finding memory takes long; ``begin`` is the moment.

    The owner calls ``before_write`` ahead of every write, the reader ``copy`` or ``skip`` for block after block in
    rising order; both hold the owner's lock.
    """

    def __init__(self, arrays: list[np.ndarray]) -> None:
        self._arrays, self.extent = arrays, 0
        self._done = 0
        self._place = np.full(arrays[0].shape[0], 0, np.int32)  # 1 + a row's number among the copies; 0: none
        self._count = 0
        self._room = max(1, CHUNK // max(1, sum(array[:1].nbytes for array in arrays)))
        self._chunks = [self.room(self._room)]

    def begin(self, extent: int) -> None:
        """From now on rows are copied before they change; the lock is held by the caller."""
        self.extent = extent

    def before_write(self, slots: np.ndarray) -> None:
        """Copy the rows among ``slots`` that the reader has not come to yet."""
        slots = slots[(slots >= self._done) & (slots < self.extent)]
        slots = slots[self._place[slots] == 0]
        while slots.size:
            start = self._count % self._room
            if self._count == len(self._chunks) * self._room:
                self._chunks.append([np.empty((self._room, *a.shape[1:]), a.dtype) for a in self._arrays])
            part, slots = slots[: self._room - start], slots[self._room - start :]
            for chunk, array in zip(self._chunks[-1], self._arrays):
                chunk[start : start + part.size] = array[part]
            self._place[part] = np.arange(self._count, self._count + part.size) + 1
            self._count += part.size

    def room(self, n: int) -> list[np.ndarray]:
        """Arrays for ``n`` rows whose memory has been found already; no lock is needed."""
        return [np.full((n, *array.shape[1:]), 0, array.dtype) for array in self._arrays]

    def copy(self, start: int, end: int, out: list[np.ndarray] | None = None) -> list[np.ndarray]:
        """The rows ``start`` … ``end`` − 1 of each array as they were."""
        blocks = self.room(end - start) if out is None else out
        for block, array in zip(blocks, self._arrays):
            block[...] = array[start:end]
        places = self._place[start:end]
        rows = np.flatnonzero(places)
        numbers = places[rows] - 1
        for which in np.unique(numbers // self._room):
            inside = numbers // self._room == which
            for block, chunk in zip(blocks, self._chunks[which]):
                block[rows[inside]] = chunk[numbers[inside] % self._room]
        self._done = end
        return blocks

    def skip(self, end: int) -> None:
        """Nobody wants the rows before ``end``."""
        self._done = end


@dataclass
class Frozen:
    """Something of one moment, to be read piece by piece: numbers, rows, and further arrays."""

    numbers: dict[str, Any]
    rows: Snapshot
    arrays: FrozenArrays
