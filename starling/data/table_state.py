"""The exact state of a table as a tree of arrays and numbers, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from starling.core.errors import DataError
from starling.core.random import generator_state, restore_generator
from starling.core.trees import items

if TYPE_CHECKING:
    from starling.data.table import Table

__all__ = ["numbers_of", "restore_numbers", "restore_table", "state_of"]


def numbers_of(table: Table) -> dict[str, Any]:
    """Counters, the largest priority and the generator; the lock is held by the caller."""
    counts, generator = table.gate.counts, generator_state(table.rng)
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


def restore_numbers(table: Table, state: Mapping[str, Any], counters: Mapping[str, int]) -> None:
    """The reverse of ``numbers_of``, but for the index; the lock is held by the caller."""
    counts = table.gate.counts
    counts.size, counts.inserts, counts.samples = counters["size"], counters["inserts"], counters["samples"]
    counts.largest_insert, counts.largest_sample = counters["largest_insert"], counters["largest_sample"]
    table.ignored_updates = counters["ignored_updates"]
    table.largest_priority = float(state["largest_priority"])
    restore_generator(table.rng, state["generator"])
    table.gate.inserted()
    table.gate.drawn()


def state_of(table: Table) -> dict[str, Any]:
    """Everything that determines the table's further behaviour (copies)."""
    with table.gate.lock:
        used = slice(0, table.index.extent)
        columns = {p: a[used].copy() for p, a in zip(table.columns.paths, table.columns.arrays)}
        pools = {str(i): pool.state() for i, pool in enumerate(table.distinct_pools().values())}
        index = {name: array.copy() for name, array in table.index.arrays().items()}
        return {**numbers_of(table), "index": index, "columns": columns, "pools": pools}


def restore_table(table: Table, state: Mapping[str, Any]) -> None:
    """The reverse of ``state_of``; DataError, and no change, where the state is of another kind of table."""
    counters = {k: int(v) for k, v in state["counters"].items()}
    if counters["capacity"] != table.capacity:
        raise DataError(f"the state is of a table of {counters['capacity']} items, this one holds {table.capacity}.")
    columns = {path: np.asarray(array) for path, array in items(dict(state["columns"]))}
    if set(columns) != set(table.columns.paths):
        raise DataError(f"the state has the leaves {sorted(columns)}, the table {sorted(table.columns.paths)}.")
    table.columns.check_stored([columns[path] for path in table.columns.paths])
    index = _checked_index(table, state["index"])
    with table.gate.lock:
        for path, column in zip(table.columns.paths, table.columns.arrays):
            column[: counters["extent"]] = columns[path]
        for i, pool in enumerate(table.distinct_pools().values()):
            pool.restore(state["pools"][str(i)])
        table.index.restore(index, counters)
        restore_numbers(table, state, counters)


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
