"""A frozen view of rows that others go on writing: a row is put aside before it is overwritten, if not copied yet."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

__all__ = ["Snapshot"]


class Snapshot:
    """Rows 0 … ``extent`` − 1 of some arrays as they were at the start.

    The owner calls ``before_write`` ahead of every write, the reader ``copy`` for block after block in rising order;
    both hold the owner's lock. ``extras`` are further arrays of the same rows that change more often.
    """

    def __init__(self, arrays: list[np.ndarray], extent: int, extras: Mapping[str, np.ndarray] | None = None) -> None:
        self._arrays, self._extras, self.extent = arrays, dict(extras or {}), extent
        self._done = 0
        self._aside = np.zeros(extent, np.bool_)
        self._saved: list[tuple[np.ndarray, list[np.ndarray]]] = []

    def before_write(self, slots: np.ndarray) -> None:
        """Put aside the rows among ``slots`` that are still to be copied."""
        slots = slots[(slots >= self._done) & (slots < self.extent)]
        slots = slots[~self._aside[slots]]
        if slots.size:
            self._aside[slots] = True
            self._saved.append((slots, [array[slots] for array in (*self._arrays, *self._extras.values())]))

    def copy(self, start: int, end: int, whole: bool = True) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
        """The rows ``start`` … ``end`` − 1 as they were: of each array if ``whole``, and of each extra."""
        skipped = 0 if whole else len(self._arrays)
        sources = [*self._arrays, *self._extras.values()][skipped:]
        blocks = [array[start:end].copy() for array in sources]
        if self._aside[start:end].any():
            for slots, rows in self._saved:
                inside = (slots >= start) & (slots < end)
                for block, row in zip(blocks, rows[skipped:]):
                    block[slots[inside] - start] = row[inside]
        self._done = end
        count = len(self._arrays) - skipped
        return blocks[:count], dict(zip(self._extras, blocks[count:]))
