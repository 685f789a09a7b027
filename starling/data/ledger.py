"""What a server has accepted: tables, how many items of each writer, and both again after a death.

With a directory there is a checkpoint from time to time, and a journal of what was inserted since. The journal is
written before the table, and the number of accepted items belongs to the checkpoint, so that a writer which sends again
after a break neither loses nor doubles an item.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from starling.core.errors import CheckpointError, ConfigError
from starling.data.checkpoints import Checkpointer
from starling.data.journal import Journal, read_journals
from starling.data.table import Table

__all__ = ["Ledger"]


class Ledger:
    """Accepts items of numbered writers into tables. A writer's name is ``actor/table``."""

    def __init__(self, tables: Mapping[str, Table], directory: Path | None, compress: bool = False) -> None:
        self._tables = dict(tables)
        self._accepted: dict[str, int] = {}
        self._lock = threading.Lock()
        self._journal: Journal | None = None
        self._saver: Checkpointer | None = None
        if directory is not None:
            saver = Checkpointer(directory, tables, also=self._book, compress=compress, guard=self._lock)
            self._recover(directory, saver)
            self._journal, self._saver = Journal(directory), saver

    def accepted(self, writer: str) -> int:
        """How many items of a writer are in: the number of the next one."""
        return self._accepted.get(writer, 0)

    def commit(
        self, table: Table, writer: str, sequence: int, n: int, leaves: list[np.ndarray], priorities: np.ndarray
    ) -> None:
        """Make ``n`` items safe and insert them; the first has the number ``sequence``."""
        with self._lock:
            if self._journal is not None:
                self._journal.append(writer, sequence, n, [*leaves, priorities])
            self._insert(table, writer, sequence, n, leaves, priorities)

    def _insert(
        self, table: Table, writer: str, sequence: int, n: int, leaves: list[np.ndarray], priorities: np.ndarray
    ) -> None:
        good = (priorities >= 0) & (priorities <= table.priority_limit)  # of NaN both are false: none was given
        given = None
        if good.any():  # an item without a priority gets the largest before it, in this batch too
            before = np.concatenate([[table.largest_priority], np.where(good, priorities, 0.0)])
            given = np.where(good, priorities, np.maximum.accumulate(before)[1:])
        stored = table.columns.intern(leaves) if table.shared else leaves
        table.insert_leaves(stored, n, given, force=True)
        if table.shared:
            table.columns.release(stored)
        self._accepted[writer] = sequence + n

    def checkpoint(self) -> None:
        """Save everything, while commits go on."""
        if self._saver is None or self._journal is None:
            raise ConfigError("the server has no directory; a checkpoint needs one.")
        self._saver.save()
        # The journals since the checkpoint before the newest stay: that one loads if the newest is damaged.
        books = [json.loads(bytes(tree["book"]).decode()) for tree in self._saver.saved_trees()]
        self._journal.drop_before(min((int(book["journal"]) for book in books), default=0))

    def _book(self) -> dict[str, np.ndarray]:
        """What belongs to a checkpoint besides the tables; taken with all locks held."""
        assert self._journal is not None
        book = {"accepted": self._accepted, "journal": self._journal.rotate()}
        return {"book": np.frombuffer(json.dumps(book).encode(), np.uint8)}

    def _recover(self, directory: Path, saver: Checkpointer) -> None:
        """Load the newest checkpoint and replay what was inserted after it."""
        first = 0
        if saver.exists:
            book = json.loads(bytes(saver.load()["book"]).decode())
            self._accepted, first = dict(book["accepted"]), int(book["journal"])
        for writer, sequence, n, content in read_journals(directory, first):
            self._replay(writer, sequence, n, content)

    def _replay(self, writer: str, sequence: int, n: int, content: bytes) -> None:
        name = writer.split("/", 1)[1]
        if name not in self._tables:
            known = sorted(self._tables)
            raise CheckpointError(f"the journal has items for a table {name!r}; this server has {known}.")
        table, offset, leaves = self._tables[name], 0, []
        widths = [int(np.prod(shape, dtype=np.int64)) * dtype.itemsize for shape, dtype in table.columns.outer]
        row = sum(widths) + 8
        if len(content) != n * row:
            each = len(content) / n
            raise CheckpointError(f"the journal's items of {name!r} have {each:g} bytes, the table's {row}.")
        for (shape, dtype), width in zip(table.columns.outer, widths):
            leaves.append(np.frombuffer(content, dtype, n * width // dtype.itemsize, offset).reshape(n, *shape))
            offset += n * width
        priorities = np.frombuffer(content, np.float64, n, offset)
        old = max(0, self.accepted(writer) - sequence)
        if old < n:
            rest = [leaf[old:] for leaf in leaves]
            self._insert(table, writer, sequence + old, n - old, rest, priorities[old:])

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()
