"""A table whose images lie in pools that are as large as the images ask for."""

from __future__ import annotations

from typing import Any

import numpy as np

from starling.core.spaces import Dict
from starling.core.trees import Tree, leaves, map_leaves
from starling.data.frames.estimates import Planes, estimate, most_frames, pools_for
from starling.data.frames.images import image_leaves
from starling.data.saving.saveable import SaveableTable
from starling.data.tables.layout import Columns
from starling.data.tables.limiters import TableCounts
from starling.data.tables.table import Table
from starling.data.untrusted import Untrusted

__all__ = ["PooledTable"]

LOOKED_AT = 1_024  # items from which the number of frames is estimated


class PooledTable:
    """Makes a table when the first items have been seen, since only they tell how many different frames there are.

        items = PooledTable(signature, 100_000, sampler=prioritized(0.6))
        items.insert(rows)
        items.table.sample(256)     # makes the table of what was seen, if it is not there yet

    Without images the table is there from the beginning. ``options`` are those of a table.
    """

    def __init__(self, signature: Dict, capacity: int, **options: Any) -> None:
        self._signature, self._capacity, self._options = signature, capacity, options
        self._images = image_leaves(signature)
        self._planes: Planes | None = None
        self._waiting: list[tuple[Tree, np.ndarray | None]] = []  # items, and priorities where they came with some
        self._table: Table | None = None
        if not self._images:
            self._make()

    def _make(self) -> Table:
        if self._images and self._planes is None:
            self._planes = estimate(self._images, [rows for rows, _ in self._waiting], self._capacity)
        pools = pools_for(self._images, self._planes) if self._planes else {}
        self._table = table = Table(self._signature, self._capacity, shared=pools, **self._options)
        self._saveable = SaveableTable(table)
        waiting, self._waiting = self._waiting, []
        for rows, priorities in waiting:
            table.insert(rows, priorities)
        return table

    @property
    def table(self) -> Table:
        return self._make() if self._table is None else self._table

    def __len__(self) -> int:
        return sum(len(leaves(rows)[0]) for rows, _ in self._waiting) if self._table is None else len(self._table)

    @property
    def counts(self) -> TableCounts:
        """What the table has counted; before there is one, the items that wait for it."""
        if self._table is not None:
            return self._table.admission.counts
        counts = TableCounts()
        counts.inserts = counts.size = len(self)
        return counts

    def insert(self, rows: Tree, priorities: np.ndarray | None = None) -> None:
        """Keep items [N, …] in the layout of the signature; without priorities they get the largest seen so far, so
        that they are soon drawn."""
        parts = leaves(rows)
        count = len(parts[0])
        if count == 0:
            return
        if self._table is None:
            self._waiting.append((map_leaves(np.array, rows), None if priorities is None else priorities.copy()))
            if len(self) >= LOOKED_AT:
                self._make()
        elif self._images:
            self._table.insert(rows, priorities)
        else:
            self._table.insert_leaves(parts, count, priorities)

    def state(self) -> Tree:
        """The items that wait, or the table as a leaf that is saved as it changes."""
        if self._table is None:
            return {"waiting": list(self._waiting)}
        return {"planes": self._planes._asdict() if self._planes else {}, "table": self._saveable}

    def restore(self, state: Tree) -> None:
        """Go on from ``state()``; CheckpointError or DataError where it is of another table, or damaged."""
        saved = Untrusted(state, "the state of a table's items", f"images at {sorted(self._images)}")
        if self._images and "waiting" in saved:
            self._waiting, self._table = self._checked_waiting(saved), None
            return
        if self._images:
            planes, most = saved.part("planes"), most_frames(self._images, self._capacity)
            self._waiting = []
            self._planes = Planes(planes.flag("stacked"), planes.integer("frames", 0, most))
            self._make()
        self._saveable.restore(saved.get("table"))

    def _checked_waiting(self, saved: Untrusted) -> list[tuple[Tree, np.ndarray | None]]:
        columns, waiting = Columns(self._signature, self._capacity), saved.get("waiting")
        pairs = isinstance(waiting, (list, tuple)) and all(
            isinstance(each, (list, tuple)) and len(each) == 2 for each in waiting
        )
        saved.check(pairs, "waiting", "it has items and their priorities, or None, in turn")
        for rows, priorities in waiting:
            n = columns.check(columns.flatten(rows))
            if priorities is not None:
                wide = getattr(priorities, "dtype", None) == np.float64
                given = Untrusted({"priorities": priorities}, "items that wait for a table")
                given.array("priorities", (n,), np.float64 if wide else np.float32)
        return list(waiting)
