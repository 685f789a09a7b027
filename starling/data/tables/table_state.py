"""The exact state of a table as a tree of arrays and numbers, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from starling.core.errors import StarlingError
from starling.core.random import generator_state, restore_generator
from starling.core.trees import items
from starling.data.tables.copy_on_write import FrozenArrays
from starling.data.tables.index_checks import check_index
from starling.data.tables.limiters import TableCounts
from starling.data.tables.snapshots import Frozen, Snapshot
from starling.data.untrusted import Untrusted

if TYPE_CHECKING:
    from starling.data.tables.table import Table

__all__ = [
    "check_frozen_table",
    "clear_table",
    "freeze_table",
    "frozen_layout_of",
    "prepare_table",
    "restore_frozen_table",
    "restore_table",
    "state_of",
]

COUNTS = ("inserts", "samples", "largest_insert", "largest_sample")
LAST_32 = 2**32 - 1


def _numbers_of(table: Table) -> dict[str, Any]:
    """Counters, the largest priority and the generator; the lock is held by the caller."""
    counts, generator = table.admission.counts, generator_state(table.rng)
    return {
        "counters": {
            **table.index.numbers(),
            "capacity": table.capacity,
            **{name: getattr(counts, name) for name in COUNTS},
            "ignored_updates": table.ignored_updates,
        },
        "largest_priority": table.largest_priority,
        "generator": {**generator, "position": np.array(generator["position"], np.int64)},
    }


def _check_numbers(table: Table, numbers: Untrusted) -> Untrusted:
    """The counters; CheckpointError where any of the numbers cannot be this table's."""
    counters, generator = numbers.part("counters"), numbers.part("generator")
    counters.integer("capacity", table.capacity, table.capacity)
    for name in (*COUNTS, "ignored_updates"):
        counters.integer(name)
    numbers.number("largest_priority", 0.0, table.priority_limit)
    for name, size in (("counter", 4), ("key", 2), ("buffer", 4)):
        generator.array(name, (size,), np.uint64)
    place = generator.array("position", (3,), np.int64)  # in the buffer, whether half a number is left, and that half
    for i, most in enumerate((4, 1, LAST_32)):
        generator.within("position", place[i], 0, most)
    return counters


def _restore_numbers(table: Table, numbers: Untrusted) -> None:
    """The reverse of ``_numbers_of``, but for the index; the lock is held by the caller."""
    counts, counters = table.admission.counts, numbers.part("counters")
    for name in COUNTS:
        setattr(counts, name, counters.integer(name))
    counts.size = table.index.size
    table.ignored_updates = counters.integer("ignored_updates")
    table.largest_priority = float(numbers.get("largest_priority"))
    restore_generator(table.rng, numbers.get("generator"))
    table.admission.inserted()
    table.admission.drawn()


def prepare_table(table: Table) -> Frozen:
    """What ``freeze_table`` fills in, with its memory; no lock is needed."""
    return Frozen({}, Snapshot(table.contents.arrays), FrozenArrays(table.index.arrays()))


def freeze_table(table: Table, frozen: Frozen) -> None:
    """Keep the table of this moment, to be read while others go on; the lock is held by the caller."""
    frozen.numbers = _numbers_of(table)
    frozen.rows.begin(table.index.extent)
    table.index.freeze(frozen.arrays)
    table.contents.snapshot = frozen.rows


def frozen_layout_of(table: Table, numbers: Untrusted) -> tuple[int, dict[str, int]]:
    """How many rows ``freeze_table`` keeps, and numbers in each array; CheckpointError where that cannot be."""
    counters = _check_numbers(table, numbers)
    extent = counters.integer("extent", 0, table.capacity)
    ranges = table.index.ranges(counters.flag("ring"), extent)
    return extent, {name: end - start for name, (_, start, end) in ranges.items()}


def check_frozen_table(table: Table, numbers: Untrusted, arrays: Untrusted) -> None:
    """CheckpointError unless ``restore_frozen_table`` may follow these; nothing changes."""
    check_index(table.index, _check_numbers(table, numbers), arrays, table.priority_limit)


def restore_frozen_table(table: Table, numbers: Untrusted, arrays: Untrusted) -> None:
    """The reverse of ``freeze_table``, the contents being there, and all of it checked; the lock is held by the
    caller."""
    table.index.restore(numbers.part("counters"), arrays)
    _restore_numbers(table, numbers)


def state_of(table: Table) -> dict[str, Any]:
    """Everything that determines the table's further behaviour (copies)."""
    contents = table.contents
    with table.admission.lock:
        used = slice(0, table.index.extent)
        columns = {path: array[used].copy() for path, array in zip(contents.paths, contents.arrays)}
        pools = {str(i): pool.state() for i, pool in enumerate(contents.pools().values())}
        index = {name: array.copy() for name, array in table.index.arrays().items()}
        return {**_numbers_of(table), "index": index, "columns": columns, "pools": pools}


def restore_table(table: Table, state: Any) -> None:
    """The reverse of ``state_of``. CheckpointError, and no change, where the state is of another kind of table or
    damaged; where only the items show it, the table is empty then."""
    contents, pools = table.contents, list(table.contents.pools().values())
    rules = f"sampled by {table.sampler.name!r}, items removed by {table.remover.name!r}"
    saved = Untrusted(state, "a table's state", f"this table holds {table.capacity} items, {rules}")
    counters = _check_numbers(table, saved)
    columns = Untrusted(dict(items(saved.get("columns"))), "the columns of a table's state", f"leaves {contents.paths}")
    columns.only(*contents.paths)
    extent = counters.integer("extent", 0, table.capacity)
    rows = [columns.array(path, (extent, *a.shape[1:]), a.dtype) for path, a in zip(contents.paths, contents.arrays)]
    arrays = _frozen_part(table, counters, saved.part("index"))
    check_frozen_table(table, saved, arrays)
    for i, pool in enumerate(pools):
        pool.check_state(saved.part("pools").get(str(i)))
    with table.admission.lock:
        try:
            for array, row in zip(contents.arrays, rows):
                array[:extent] = row
            for i, pool in enumerate(pools):
                pool.restore(saved.part("pools").get(str(i)))
            restore_frozen_table(table, saved, arrays)
            contents.check()
            for pool in pools:
                pool.check_contents([table])
        except StarlingError:
            clear_table(table)
            for pool in pools:
                with pool.lock:
                    pool.clear()
            raise


def _frozen_part(table: Table, counters: Untrusted, index: Untrusted) -> Untrusted:
    """What ``freeze_table`` would have named of the arrays of an index."""
    ranges = table.index.ranges(counters.flag("ring"), counters.integer("extent", 0, table.capacity))
    saved = {name: index.array(name, array.shape, array.dtype) for name, array in table.index.arrays().items()}
    return Untrusted({name: saved[source][start:end] for name, (source, start, end) in ranges.items()}, index.what)


def clear_table(table: Table) -> None:
    """Forget all items, and all that was counted; the lock is held by the caller."""
    table.index.clear()
    table.admission.counts = TableCounts()
