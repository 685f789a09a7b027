"""The exact state of a table as a tree of arrays and numbers, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from starling.core.errors import DataError
from starling.core.random import generator_state, restore_generator
from starling.core.trees import items
from starling.data.tables.copy_on_write import FrozenArrays
from starling.data.tables.layout import refuse_leaf
from starling.data.tables.snapshots import Frozen, Snapshot

if TYPE_CHECKING:
    from starling.data.tables.table import Table

__all__ = ["freeze_table", "prepare_table", "restore_frozen_table", "restore_table", "state_of"]


def _numbers_of(table: Table) -> dict[str, Any]:
    """Counters, the largest priority and the generator; the lock is held by the caller."""
    counts, generator = table.admission.counts, generator_state(table.rng)
    return {
        "counters": {
            **table.index.numbers(),
            "capacity": table.capacity,
            "inserts": counts.inserts,
            "samples": counts.samples,
            "largest_insert": counts.largest_insert,
            "largest_sample": counts.largest_sample,
            "ignored_updates": table.ignored_updates,
        },
        "largest_priority": table.largest_priority,
        "generator": {**generator, "position": np.array(generator["position"], np.int64)},
    }


def _restore_numbers(table: Table, state: Mapping[str, Any], counters: Mapping[str, int]) -> None:
    """The reverse of ``_numbers_of``, but for the index; the lock is held by the caller."""
    counts = table.admission.counts
    counts.size, counts.inserts, counts.samples = counters["size"], counters["inserts"], counters["samples"]
    counts.largest_insert, counts.largest_sample = counters["largest_insert"], counters["largest_sample"]
    table.ignored_updates = counters["ignored_updates"]
    table.largest_priority = float(state["largest_priority"])
    restore_generator(table.rng, state["generator"])
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


def restore_frozen_table(table: Table, numbers: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """The reverse of ``freeze_table``, the contents being there; the lock is held by the caller."""
    counters = {k: int(v) for k, v in numbers["counters"].items()}
    table.index.restore_frozen(arrays, counters, counters["inserts"])
    _restore_numbers(table, numbers, counters)


def state_of(table: Table) -> dict[str, Any]:
    """Everything that determines the table's further behaviour (copies)."""
    contents = table.contents
    with table.admission.lock:
        used = slice(0, table.index.extent)
        columns = {path: array[used].copy() for path, array in zip(contents.paths, contents.arrays)}
        pools = {str(i): pool.state() for i, pool in enumerate(contents.pools().values())}
        index = {name: array.copy() for name, array in table.index.arrays().items()}
        return {**_numbers_of(table), "index": index, "columns": columns, "pools": pools}


def restore_table(table: Table, state: Mapping[str, Any]) -> None:
    """The reverse of ``state_of``; DataError, and no change, where the state is of another kind of table."""
    contents = table.contents
    counters = {k: int(v) for k, v in state["counters"].items()}
    if counters["capacity"] != table.capacity:
        raise DataError(f"the state is of a table of {counters['capacity']} items, this one holds {table.capacity}.")
    columns = {path: np.asarray(array) for path, array in items(dict(state["columns"]))}
    if set(columns) != set(contents.paths):
        raise DataError(f"the state has the leaves {sorted(columns)}, the table {sorted(contents.paths)}.")
    for path, array in zip(contents.paths, contents.arrays):
        if columns[path].dtype != array.dtype or columns[path].shape != (counters["extent"], *array.shape[1:]):
            refuse_leaf(path, columns[path], counters["extent"], array.shape[1:], array.dtype)
    index = _checked_index(table, state["index"])
    with table.admission.lock:
        for path, array in zip(contents.paths, contents.arrays):
            array[: counters["extent"]] = columns[path]
        for i, pool in enumerate(contents.pools().values()):
            pool.restore(state["pools"][str(i)])
        table.index.restore(index, counters)
        _restore_numbers(table, state, counters)


def _checked_index(table: Table, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    checked = {}
    for name, array in table.index.arrays().items():
        checked[name] = np.asarray(given[name]) if name in given else np.zeros(0)
        if checked[name].shape != array.shape:
            raise DataError(
                f"{name} of the state has shape {list(checked[name].shape)}, this table {list(array.shape)}; was that "
                f"table sampled by {table.sampler.name!r} and its items removed by {table.remover.name!r}?"
            )
    return checked
