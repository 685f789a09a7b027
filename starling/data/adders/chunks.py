"""Chunks: a sink that gathers the items of an adder, to be sent instead of inserted.

chunk = Chunk(signature, rows=256)
adder = NStepAdder(chunk, num_envs=8, n=3)
while acting:
    adder.add(...)
items, n = chunk.take()                    # arrays [n, …], in the order in which the items became complete
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from starling.core.errors import ConfigError, DataError
from starling.core.spaces import Dict
from starling.core.trees import leaves
from starling.data.adders.steps import Leaves
from starling.data.flattening import unflatten
from starling.data.untrusted import Untrusted

if TYPE_CHECKING:
    from starling.data.frames.base import AnyFramePool

__all__ = ["Chunk"]


class Chunk:
    """Room for ``rows`` items at first, and for more when they come; observations lie in it whole."""

    shared: Mapping[str, AnyFramePool] = {}

    def __init__(self, signature: Dict, rows: int) -> None:
        if rows < 1:
            raise ConfigError(f"rows={rows}; a chunk has room for one item at least.")
        self.signature, self.rows = signature, rows
        self._layout = [(leaf.shape, leaf.numpy_dtype) for _, leaf in signature.items()]
        self._count = 0
        self._leaves = self._room()

    def _room(self) -> Leaves:
        return [np.empty((self.rows, *shape), dtype) for shape, dtype in self._layout]

    def __len__(self) -> int:
        return self._count

    def insert_leaves(self, leaves: Leaves, n: int, priorities: Any = None, timeout: float | None = None) -> int:
        """Append ``n`` items that keep to the signature; returns how many there are. Never waits."""
        if priorities is not None:
            raise DataError(
                f"priorities of {n} items arrived; a chunk keeps items alone. Compute them from what take() gives."
            )
        start, self._count = self._count, self._count + n
        if self._count > self.rows:
            self._grow(start)
        for kept, leaf in zip(self._leaves, leaves):
            kept[start : self._count] = leaf
        return self._count

    def _grow(self, filled: int) -> None:
        old, self.rows = self._leaves, max(2 * self.rows, self._count)
        self._leaves = self._room()
        for kept, leaf in zip(self._leaves, old):
            kept[:filled] = leaf[:filled]

    def take(self) -> tuple[Any, int]:
        """The items as a tree of arrays [n, …] that are the caller's from now on, and n; the chunk is empty then."""
        n, leaves = self._count, self._leaves
        self._count, self._leaves = 0, self._room()
        return unflatten(self.signature, [leaf[:n] for leaf in leaves]), n

    def blank(self, rows: int) -> Any:
        """Zeros in the layout of so many items."""
        return self.signature.ranked(batch=True).zeros((rows,))

    def padded(self, items: Any, rows: int) -> Any:
        """A copy of items [n, …] with zeros behind them, ``rows`` in all: for code that is compiled for one size."""
        whole = self.blank(rows)
        for room, leaf in zip(leaves(whole), leaves(items), strict=True):
            room[: len(leaf)] = leaf
        return whole

    def state(self) -> dict[str, Any]:
        """The items that were not taken, as a tree of arrays (copies)."""
        return {"items": {str(i): leaf[: self._count].copy() for i, leaf in enumerate(self._leaves)}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state()`` of a chunk of the same signature; what was gathered here is dropped."""
        items = Untrusted(state, "a chunk's state", "is it of another signature?").part("items")
        n: int | None = None
        given = []
        for i, (shape, dtype) in enumerate(self._layout):
            given.append(items.array(str(i), (n, *shape), dtype))
            n = len(given[0])
        self._count = 0
        self.insert_leaves(given, n or 0)
