"""What a checkpoint consists of: tables and pools, each as rows in blocks, further arrays in pieces, and numbers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from starling.data.frames.base import AnyFramePool
from starling.data.tables.copy_on_write import PAGE, FrozenArrays
from starling.data.tables.snapshots import Frozen
from starling.data.tables.table import Table
from starling.data.untrusted import Untrusted

__all__ = ["LARGEST_PIECE", "Kept", "Piece", "Source", "batches", "sources_of"]

Piece = tuple[str, int, int]  # array, first number, the one behind the last
CACHE_LINE = 64
LARGEST_PIECE = 2_000_000  # bytes passed over while a lock is held


class Kept(Protocol):
    """A table or a pool: what it is at one moment, and back. The lock is held by the caller, but not of ``prepare``,
    ``frozen_layout`` and ``check_frozen``."""

    @property
    def lock(self) -> threading.Lock: ...

    def prepare(self) -> Frozen: ...

    def freeze(self, frozen: Frozen) -> None: ...

    def thaw(self) -> None: ...

    def frozen_layout(self, numbers: Untrusted) -> tuple[int, dict[str, int]]: ...

    def check_frozen(self, numbers: Untrusted, arrays: Untrusted) -> None: ...

    def restore_frozen(self, numbers: Untrusted, arrays: Untrusted) -> None: ...

    def check_contents(self) -> None: ...

    def clear(self) -> None: ...


@dataclass
class Source:
    """A table or a pool. ``stamps`` gives a number per row that differs whenever the row's contents do; it needs the
    saved numbers and the array named ``stamped``, where that was saved. ``live`` are those of this moment."""

    name: str
    kept: Kept
    paths: list[str]
    rows: list[np.ndarray]
    describe: dict[str, Any]
    stamped: str
    stamps: Callable[[Mapping[str, Any], np.ndarray | None], np.ndarray]
    live: np.ndarray

    @property
    def row_bytes(self) -> int:
        return max(1, sum(array[:1].nbytes for array in self.rows))


def _table_source(name: str, table: Table) -> Source:
    def stamps(numbers: Mapping[str, Any], keys: np.ndarray | None) -> np.ndarray:
        return table.index.ring_keys(int(numbers["counters"]["inserts"])) if keys is None else keys

    contents = table.contents
    describe = {
        "capacity": table.capacity,
        "columns": [f"{p}: {a.dtype}{list(a.shape[1:])}" for p, a in zip(contents.paths, contents.arrays)],
        "sampler": [table.sampler.name, *table.sampler.weighing],
        "remover": [table.remover.name, *table.remover.weighing],
        "max_times_sampled": table.index.max_times,
    }
    return Source(name, table, contents.paths, contents.arrays, describe, "keys", stamps, table.index.keys)


def _pool_source(name: str, pool: AnyFramePool) -> Source:
    def stamps(numbers: Mapping[str, Any], generation: np.ndarray | None) -> np.ndarray:
        assert generation is not None
        return generation

    describe = {"kind": type(pool).__name__, "frames": pool.frames, "rows": len(pool.rows), "space": str(pool.space)}
    return Source(name, pool, ["frames"], [pool.rows], describe, "generation", stamps, pool.arrays["generation"])


def sources_of(tables: Mapping[str, Table]) -> list[Source]:
    """The tables, then the pools that they share, each once; locks are taken in this order."""
    tables = dict(sorted(tables.items()))
    pools: dict[int, Source] = {}
    for name, table in tables.items():
        for path, pool in table.contents.pools().items():
            pools.setdefault(id(pool), _pool_source(f"{name}@{path}", pool))
    return [*(_table_source(name, table) for name, table in tables.items()), *pools.values()]


def batches(arrays: FrozenArrays, nbytes: int) -> Iterator[list[Piece]]:
    """All arrays in pieces that are quickly copied, and those in batches of about ``nbytes`` bytes.

    Copying costs as much as the memory that is passed over, which is more for numbers that lie among others.
    """
    batch: list[Piece] = []
    size = 0
    for name in arrays.ranges:
        width, length = arrays.dtype(name).itemsize, arrays.length(name)
        passed = max(width, min(CACHE_LINE, arrays.stride(name)))
        step = max(PAGE, min(nbytes, LARGEST_PIECE) // passed // PAGE * PAGE)  # whole pages: none is read twice
        for start in range(0, length, step):
            end = min(start + step, length)
            if batch and size + width * (end - start) > nbytes:
                yield batch
                batch, size = [], 0
            batch.append((name, start, end))
            size += width * (end - start)
    if batch:
        yield batch
