"""The durable log of a table server: what it has accepted survives a crash.

With a directory there is a checkpoint from time to time, and a journal of what happened since. The number of accepted
items belongs to the checkpoint, so that a writer which sends again after a break neither loses nor doubles an item.
Inserts, draws and updates are done and noted under one lock: a checkpoint falls between two of them. Notes of inserts,
and of draws that use items up, are written at once; those of other draws and of updates may wait for a moment, and be
written together.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from starling.core.errors import CheckpointError, ConfigError
from starling.data.saving.checkpoints import Checkpointer
from starling.data.saving.journal import DRAW, INSERT, UPDATE, Journal, Record, read_journals
from starling.data.saving.replay import drawn_again, inserted_items, updated_again
from starling.data.tables.sample import Sample
from starling.data.tables.table import Table
from starling.data.untrusted import Untrusted, json_object

__all__ = ["DurableLog", "writer_name"]

MOMENT = 0.002  # seconds that a note may wait
MOST_WAITING = 65_536  # bytes of notes that may wait


def writer_name(actor: int, tables: Sequence[str]) -> str:
    """``3/replay``, or ``3/replay,recent`` of a writer to several tables."""
    return f"{actor}/{','.join(tables)}"


class DurableLog:
    """Accepts items of numbered writers into tables, and remembers what is drawn and updated.

    ``durable`` has the disk confirm items before they count as safe.
    """

    def __init__(
        self, tables: Mapping[str, Table], directory: Path | None, compress: bool = False, durable: bool = False
    ) -> None:
        self._tables, self._durable = dict(tables), durable
        self._names = {id(table): name for name, table in tables.items()}
        self._accepted: dict[str, int] = {}
        self._lock = threading.Lock()
        self._journal: Journal | None = None
        self._saver: Checkpointer | None = None
        self._deadline = float("inf")  # when the notes that wait must be written
        self._promised = False  # among them are items of which a writer will be told that they are safe
        if directory is not None:
            saver = Checkpointer(directory, tables, also=self._position, compress=compress, guard=self._lock)
            self._recover(directory, saver)
            self._journal, self._saver = Journal(directory), saver
        elif durable:
            raise ConfigError("durable=True without a directory; there is nothing to write to.")

    def accepted(self, writer: str) -> int:
        """How many items of a writer are in: the number of the next one."""
        return self._accepted.get(writer, 0)

    def insert(
        self,
        tables: Sequence[Table],
        writer: str,
        sequence: int,
        n: int,
        leaves: list[np.ndarray],
        priorities: np.ndarray,
    ) -> None:
        """Insert ``n`` items, the first with the number ``sequence``; they are safe after ``flush``.

        The arrays may lie in a client's memory and change meanwhile: what is looked at twice is copied before.
        """
        priorities = priorities.copy()
        with self._lock:
            if self._journal is None:
                self._insert(tables, writer, sequence, n, leaves, priorities)
                return
            leaves = [leaf.copy() for leaf in leaves]
            self._insert(
                tables, writer, sequence, n, leaves, priorities
            )  # before the note: what is refused leaves none
            self._journal.append(INSERT, writer, sequence, n, [*leaves, priorities])
            self._deadline, self._promised = 0.0, True

    def draw(self, table: Table, out: Sample) -> None:
        """Draw a batch, which must not have to wait."""
        with self._lock:
            table.sample(out.batch_size, out=out, timeout=0)
            if self._journal is not None:
                self._journal.append(DRAW, self._names[id(table)], 0, out.batch_size, [])
                wait = 0.0 if table.index.max_times else MOMENT
                self._deadline = min(self._deadline, time.monotonic() + wait)

    def update(self, table: Table, keys: np.ndarray, priorities: np.ndarray) -> None:
        """Give items other priorities."""
        with self._lock:
            table.update_priorities(keys, priorities)
            if self._journal is not None:
                self._journal.append(UPDATE, self._names[id(table)], 0, keys.size, [keys, priorities])
                self._deadline = min(self._deadline, time.monotonic() + MOMENT)

    def flush(self, idle: bool = False) -> bool:
        """Make safe what was done; False where notes still wait, which they do not if the server is ``idle``."""
        if self._journal is None or self._deadline == float("inf"):
            return True
        if not idle and time.monotonic() < self._deadline and self._journal.waiting_bytes < MOST_WAITING:
            return False
        with self._lock:
            if self._durable and self._promised:
                self._journal.sync()
            else:
                self._journal.flush()
            self._deadline, self._promised = float("inf"), False
        return True

    def _insert(
        self,
        tables: Sequence[Table],
        writer: str,
        sequence: int,
        n: int,
        leaves: list[np.ndarray],
        priorities: np.ndarray,
    ) -> None:
        for table in tables:
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
        """Save everything, while inserts go on."""
        if self._saver is None or self._journal is None:
            raise ConfigError("the server has no directory; a checkpoint needs one.")
        self._saver.save()
        # The journals since the checkpoint before the newest stay: that one loads if the newest is damaged.
        journals = [_position_of(tree)[1] for tree in self._saver.saved_trees()]
        self._journal.drop_before(min(journals, default=0))

    def _position(self) -> dict[str, np.ndarray]:
        """Where the log stands: how much of each writer is in, and the journal that follows; all locks are held."""
        assert self._journal is not None
        position = {"accepted": self._accepted, "journal": self._journal.rotate(keep_open=self._durable)}
        return {"position": np.frombuffer(json.dumps(position).encode(), np.uint8)}

    def _recover(self, directory: Path, saver: Checkpointer) -> None:
        """Load the newest checkpoint and do again what happened after it."""
        first = 0
        if saver.numbers():
            self._accepted, first = _position_of(saver.load())
        for record in read_journals(directory, first):
            if record.kind == INSERT:
                self._insert_again(record)
            elif record.kind == DRAW:
                drawn_again(self._tables, record)
            else:
                updated_again(self._tables, record)

    def _insert_again(self, record: Record) -> None:
        tables, leaves, priorities = inserted_items(self._tables, record)
        n, old = record.items, max(0, self.accepted(record.name) - record.sequence)
        if old < n:
            rest = [leaf[old:] for leaf in leaves]
            self._insert(tables, record.name, record.sequence + old, n - old, rest, priorities[old:])

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()


def _position_of(saved: Any) -> tuple[dict[str, int], int]:
    """How much of each writer a checkpoint holds, and the journal that follows it."""
    content = Untrusted(saved, "what a checkpoint has beside its tables").array("position", (None,), np.uint8)
    position = Untrusted(
        json_object(content.tobytes(), "the position of a log", CheckpointError), "the position of a log"
    )
    accepted = position.part("accepted")
    return {writer: accepted.integer(writer) for writer in accepted}, position.integer("journal")
