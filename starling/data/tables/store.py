"""A store: items that several tables hold are stored once.

    store = Store(signature, 1_000_000)
    replay = Table(signature, 1_000_000, store=store)
    urgent = Table(signature, 10_000, sampler="prioritized", remover="min_heap", store=store)
    adder = NStepAdder([replay, urgent], num_envs=8)

An item is one record of bytes; tables keep the numbers of records. As in a pool of frames, sharing is decided by the
contents, byte for byte, whoever brings the item and whenever, and a record is freed when the last table lets go of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from starling.core.errors import ConfigError
from starling.core.memory import refuse_if_too_large
from starling.core.spaces import Dict, Int
from starling.data.frames.base import AnyFramePool
from starling.data.frames.pool import FramePool
from starling.data.tables.layout import Columns

__all__ = ["Store"]

SMALLEST = 8  # bytes of a record that a pool can tell from others


class Store:
    """Room for ``items`` different items of a signature.

    When it is full, its tables give up items by their own removers. ``shared`` names the leaves whose frames lie in a
    pool, for all tables; ``directory`` keeps the records in a file there.
    """

    def __init__(
        self,
        signature: Dict,
        items: int,
        *,
        shared: Mapping[str, AnyFramePool] | None = None,
        directory: Path | None = None,
    ) -> None:
        if items < 2:
            raise ConfigError(f"items={items}; a store has room for two items at least.")
        self.signature, self.shared = signature, dict(shared or {})
        self.columns = Columns(signature, items, self.shared)
        if directory is None:
            remedy = "Lower items, store frames once with shared=…, or use directory=…."
            refuse_if_too_large(f"a store of {items:,} items", self.columns.bytes_by_leaf(), remedy)
        self._offsets, width = self.columns.record(range(len(self.columns.paths)))
        self._width = max(SMALLEST, width)
        self.pool = FramePool(Int((self._width,), 0, 256, "uint8"), items, directory=directory)
        leaves = range(len(self.columns.paths))
        self.columns.arrays = [self.columns.leaf_of(self.pool.data, i, self._offsets[i]) for i in leaves]

    @property
    def in_use(self) -> int:
        """How many different items are held."""
        return self.pool.in_use

    def intern(self, leaves: list[np.ndarray], n: int) -> np.ndarray:
        """The record numbers of ``n`` items, each with one reference more; shared leaves come as frame numbers."""
        records = np.zeros((n, self._width), np.uint8)
        for i, leaf in enumerate(leaves):
            self.columns.leaf_of(records, i, self._offsets[i])[...] = leaf
        return self.pool.intern(records).reshape(n)
