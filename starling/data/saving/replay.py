"""What a record of a journal says, checked against the tables to which it happens again."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from starling.core.errors import CheckpointError
from starling.data.saving.journal import Record
from starling.data.tables.table import Table
from starling.data.untrusted import LARGEST

__all__ = ["drawn_again", "inserted_items", "largest_batch", "updated_again"]

LARGEST_BATCH = 65_536  # items; of a table that holds more, as many as that


def largest_batch(table: Table) -> int:
    """Items that are drawn from a table at once."""
    return max(LARGEST_BATCH, table.capacity)


def _check(record: Record, holds: bool, rule: str) -> None:
    if not holds:
        raise CheckpointError(
            f"the journal has {record.items} items and {len(record.content)} bytes of {record.name!r:.200}, from "
            f"number {record.sequence} on; {rule}. It is damaged, or of other tables; set it aside to start without."
        )


def _table(tables: Mapping[str, Table], name: str) -> Table:
    if name not in tables:
        raise CheckpointError(f"the journal speaks of a table {name!r:.200}; this server has {sorted(tables)}.")
    return tables[name]


def drawn_again(tables: Mapping[str, Table], record: Record) -> None:
    table = _table(tables, record.name)
    most = largest_batch(table)
    _check(record, 1 <= record.items <= most and not record.content, f"a draw has 1 to {most} items, and no content")
    table.draw_again(record.items)


def updated_again(tables: Mapping[str, Table], record: Record) -> None:
    table, n = _table(tables, record.name), record.items
    _check(record, len(record.content) == 16 * n, "an update has a key and a priority for each")
    keys, priorities = np.frombuffer(record.content, np.int64, n), np.frombuffer(record.content, np.float64, n, 8 * n)
    table.update_priorities(keys.copy(), priorities.copy())


def inserted_items(tables: Mapping[str, Table], record: Record) -> tuple[list[Table], list[np.ndarray], np.ndarray]:
    """The tables into which items went, their leaves, and their priorities."""
    _, _, names = record.name.partition("/")
    into = [_table(tables, name) for name in names.split(",")]
    layouts, most = [(table.columns.paths, table.columns.outer) for table in into], min(t.capacity for t in into)
    _check(record, all(layout == layouts[0] for layout in layouts), "all of the tables hold the same kind of items")
    outer, n, offset, leaves = layouts[0][1], record.items, 0, []
    widths = [math.prod(shape) * dtype.itemsize for shape, dtype in outer]
    row = sum(widths) + 8  # with the priority
    _check(record, len(record.content) == n * row, f"an item has {row} bytes")
    _check(record, 1 <= n <= most and record.sequence + n <= LARGEST, f"1 to {most} items are inserted at once")
    for (shape, dtype), width in zip(outer, widths):
        leaf = np.frombuffer(record.content, dtype, n * width // dtype.itemsize, offset)
        leaves.append(leaf.reshape(n, *shape))
        offset += n * width
    return into, leaves, np.frombuffer(record.content, np.float64, n, offset)
