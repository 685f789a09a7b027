"""What a table's slots hold: rows of their own, or the numbers of rows in a store that several tables share.

A *stored* batch is a list of arrays as slots hold them: the leaves with frame numbers in place of shared observations,
or, with a store, one array of row numbers. References to frames and rows are counted: one for each slot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from starling.core.errors import ConfigError
from starling.core.spaces import Dict
from starling.data.frames.base import AnyFramePool
from starling.data.tables.kernels import gather_rows
from starling.data.tables.layout import Columns
from starling.data.tables.sample import Sample
from starling.data.tables.snapshots import Snapshot
from starling.data.tables.store import Store
from starling.data.untrusted import Untrusted

__all__ = ["Contents"]

SLOT = np.dtype([("key", np.int64), ("priority", np.float64), ("row", np.int64)])


class Contents:
    """The contents of ``capacity`` slots.

    ``columns`` is where the leaves lie, by row; ``arrays`` is what the slots themselves hold, by ``paths``. ``keys``
    and ``priorities`` are the index's, here because they lie beside the items.
    """

    def __init__(
        self,
        signature: Dict,
        capacity: int,
        shared: Mapping[str, AnyFramePool] | None,
        directory: Path | None,
        store: Store | None,
    ) -> None:
        self.store, self.capacity = store, capacity
        self.snapshot: Snapshot | None = None
        self.columns = Columns(signature, capacity, shared, directory)
        if store is not None:
            if shared or directory:
                raise ConfigError("a table over a store was given shared=… or directory=…; both belong to the store.")
            if (self.columns.paths, self.columns.outer) != (store.columns.paths, store.columns.outer):
                raise ConfigError(f"the store holds {store.signature}, the table {signature}; they must be the same.")
            self.columns = store.columns
        self.counted = store is not None or bool(shared)

    def bytes_needed(self) -> dict[str, int]:
        """Bytes of memory by leaf; those of a store or a pool are its own."""
        if self.store is not None:
            return {"(rows)": 8 * self.capacity}
        return {} if self.columns.directory else self.columns.bytes_by_leaf()

    def allocate(self) -> None:
        if self.store is None:
            self.columns.allocate()
            self.keys, self.priorities = self.columns.keys, self.columns.priorities
            self.paths, self.arrays = self.columns.paths, self.columns.arrays
        else:
            slots = np.zeros(self.capacity, SLOT)
            self.keys, self.priorities = slots["key"], slots["priority"]
            self.paths, self.arrays = ["(row)"], [slots["row"]]

    def pools(self) -> dict[str, AnyFramePool]:
        """Each pool once, under the first of its leaves, and that of the store."""
        distinct: dict[int, tuple[str, AnyFramePool]] = {}
        for i, pool in sorted(self.columns.pools.items()):
            distinct.setdefault(id(pool), (self.columns.paths[i], pool))
        found = dict(distinct.values())
        return found if self.store is None else {"(items)": self.store.pool, **found}

    def where(self, slots: np.ndarray) -> np.ndarray:
        """The rows of ``columns`` that the slots hold."""
        return slots if self.store is None else self.arrays[0][slots]

    def put_run(self, start: int, n: int, stored: list[np.ndarray]) -> None:
        """Write items into slots that follow each other, whose references are not counted."""
        if self.snapshot is not None:
            self.snapshot.before_write(np.arange(start, start + n))
        if n == 1:
            for column, leaf in zip(self.arrays, stored):
                column[start] = leaf[0]
        else:
            for column, leaf in zip(self.arrays, stored):
                column[start : start + n] = leaf

    def put(self, slots: np.ndarray, evicted: np.ndarray, stored: list[np.ndarray]) -> None:
        """Write items into slots; ``evicted`` says which of those held another item."""
        if self.counted:
            if len(set(slots.tolist())) < slots.size:  # some of the batch took the place of others of the batch
                for i in range(slots.size):
                    self.put(slots[i : i + 1], evicted[i : i + 1], [leaf[i : i + 1] for leaf in stored])
                return
            for pool, ids in self._references(stored):
                pool.retain(ids)
            self.let_go(slots[evicted])
        if self.snapshot is not None:
            self.snapshot.before_write(slots)
        for column, leaf in zip(self.arrays, stored):
            column[slots] = leaf

    def let_go(self, slots: np.ndarray) -> None:
        """Give back the references of slots whose items have left."""
        if self.counted and slots.size:
            for pool, ids in list(self._references([array[slots] for array in self.arrays])):
                pool.release(ids)

    def _references(self, stored: list[np.ndarray]) -> Iterator[tuple[AnyFramePool, np.ndarray]]:
        """Each pool with the numbers that a stored batch refers to."""
        for i, pool in self.columns.pools.items():
            yield pool, stored[i] if self.store is None else self.columns.arrays[i][stored[0]]
        if self.store is not None:
            yield self.store.pool, stored[0].astype(np.int32)

    def references_to(self, pool: AnyFramePool) -> np.ndarray:
        """How often the items refer to each frame of a pool, or row of the store; the lock is held by the caller."""
        slots, found = np.flatnonzero(self.keys >= 0), np.zeros(pool.frames, np.int64)
        for each, ids in self._references([array[slots] for array in self.arrays]):
            if each is pool:
                found += np.bincount(ids[ids >= 0], minlength=pool.frames)
        return found

    def check(self) -> None:
        """CheckpointError where restored items refer to rows or frames that are not there; the lock is held by the
        caller."""
        slots = np.flatnonzero(self.keys >= 0)
        saved = Untrusted({}, "the items of a table")
        if self.store is not None:
            rows = self.arrays[0][slots, None]
            saved.within("(row)", rows, 0, self.store.pool.frames - 1)
            self.store.pool.check_ids(saved, "(row)", rows, np.ones(slots.size, np.bool_))
        for i, pool in self.columns.pools.items():
            ids = self.columns.arrays[i][self.where(slots)]
            pool.check_ids(saved, self.columns.paths[i], ids, np.ones(ids.shape[:-1], np.bool_))

    def gather(self, out: Sample, n: int) -> None:
        """Copy the items of ``out.slots`` into the buffers."""
        rows = self.where(out.slots)
        gather_rows(out.plan, rows, n)
        for i, pool in self.columns.pools.items():
            pool.gather(self.columns.arrays[i], rows, out.leaves[i])

    def read(self, slots: np.ndarray) -> list[np.ndarray]:
        """The leaves of the items in these slots (copies)."""
        rows, leaves = self.where(slots), []
        for i, column in enumerate(self.columns.arrays):
            if i not in self.columns.pools:
                leaves.append(column[rows])
                continue
            shape, dtype = self.columns.outer[i]
            leaves.append(np.empty((rows.size, *shape), dtype))
            self.columns.pools[i].gather(column, rows, leaves[-1])
        return leaves
