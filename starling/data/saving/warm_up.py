"""Compile the copy-on-write loops before anybody waits for them.

A compiled loop gets its machine code at the first call with new types; on a machine's first checkpoint that takes
seconds, and it would happen with a table's lock held. So each kind of table and pool is first frozen, changed and read
once in miniature.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from starling.core.spaces import Dict, Int
from starling.data.frames.base import AnyFramePool
from starling.data.frames.compressed import CompressedFramePool
from starling.data.frames.pool import FramePool
from starling.data.tables.selectors import prioritized
from starling.data.tables.snapshots import Frozen
from starling.data.tables.table import Table

__all__ = ["warm_up"]

ITEM = Dict(n=Int((), dtype="int64"))
FRAME = Int((8,), 0, 256, "uint8")


def warm_up(tables: Iterable[Table]) -> None:
    """Freeze and change small tables and pools of the kinds that these are; each kind once in a process."""
    for table in tables:
        _warm_up_table(bool(table.index.keys.flags.c_contiguous))
        for pool in table.contents.pools().values():
            _warm_up_pool(type(pool))


def _read(frozen: Frozen) -> None:
    for name in frozen.arrays.ranges:
        frozen.arrays.copy(name, 0, frozen.arrays.length(name))


@functools.cache
def _warm_up_table(in_files: bool) -> None:
    """Keys and priorities lie among the items, or by themselves where the items lie in files."""
    with tempfile.TemporaryDirectory() as directory:
        for remover in ("fifo", "uniform"):  # in the circle of slots, and not
            table = Table(
                ITEM, 4, sampler=prioritized(0.5), remover=remover, directory=Path(directory) if in_files else None
            )
            frozen = table.prepare()
            table.freeze(frozen)
            for n in (1, 3, 2):
                keys = table.insert({"n": np.arange(n)}, np.ones(n))
                table.update_priorities(table.sample(n).keys, np.ones(n))
            table.remove(keys)
            table.insert({"n": np.arange(1)})
            table.evict()
            _read(frozen)


@functools.cache
def _warm_up_pool(kind: type[AnyFramePool]) -> None:
    pool = CompressedFramePool(FRAME, 4, nbytes=4096) if kind is CompressedFramePool else FramePool(FRAME, 4)
    table = Table(Dict(frame=FRAME), 2, shared={"frame": pool})
    frozen = pool.prepare()
    pool.freeze(frozen)
    for number in range(4):
        table.insert({"frame": np.full((1, 8), number, np.uint8)})
    _read(frozen)
