"""Where a table's bytes go: columns laid out from a signature, and their size known before anything is allocated.

Leaves of at most ``PACKED`` bytes share one record per item with the item's key and priority, so that fetching a
transition misses the cache once and not once a leaf; larger leaves have an array each. Either way a column is an
ordinary array view [capacity, *shape].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from starling.core.errors import DataError, UnknownNameError
from starling.core.spaces import Dict, Leaf
from starling.data.flattening import flatten_items, unflatten
from starling.data.saving.files import map_file

if TYPE_CHECKING:
    from starling.data.frames.base import AnyFramePool

__all__ = ["Columns", "aligned_zeros", "refuse_leaf"]

PACKED = 256
CACHE_LINE = 64
HEADER = np.dtype([("key", np.int64), ("priority", np.float64)])


def aligned_zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Zeros that start at a cache line."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    block = np.zeros(size + CACHE_LINE, np.uint8)
    start = -block.__array_interface__["data"][0] % CACHE_LINE
    return block[start : start + size].view(dtype).reshape(shape)


class Columns:
    """The columns of ``capacity`` items of a signature.

    ``shapes``, ``dtypes`` and ``widths`` describe what a row holds; ``outer`` what callers see. The two differ for
    leaves whose frames lie in a pool: rows hold frame numbers, callers see observations.
    """

    def __init__(
        self,
        signature: Dict,
        capacity: int,
        shared: Mapping[str, AnyFramePool] | None = None,
        directory: Path | None = None,
    ) -> None:
        self.signature, self.capacity, self.directory = signature, capacity, directory
        self.paths = [path for path, _ in signature.items()]
        for path in shared or {}:
            if path not in self.paths:
                raise UnknownNameError("shared leaf", path, self.paths)
        self.pools = {i: shared[path] for i, path in enumerate(self.paths) if shared and path in shared}
        seen = [leaf for _, leaf in signature.items()]
        kept = [self.pools[i].stored_space(leaf) if i in self.pools else leaf for i, leaf in enumerate(seen)]
        self.shapes = [leaf.shape for leaf in kept]
        self.dtypes = [leaf.numpy_dtype for leaf in kept]
        self.widths = [leaf.size * leaf.numpy_dtype.itemsize for leaf in kept]
        self.outer = [(leaf.shape, leaf.numpy_dtype) for leaf in seen]
        flat = all(isinstance(space, Leaf) for space in signature.spaces.values())
        self._flat_names = list(signature.spaces) if flat else None
        self.arrays: list[np.ndarray] = []

    def bytes_by_leaf(self) -> dict[str, int]:
        return {path: width * self.capacity for path, width in zip(self.paths, self.widths)}

    def record(self, leaves: Iterable[int], header: int = 0) -> tuple[dict[int, int], int]:
        """Where each of these leaves lies in one record behind ``header`` bytes, and the bytes of the record."""
        offsets, stride = {}, header
        for i in sorted(leaves, key=lambda i: -self.dtypes[i].itemsize):  # wide types first keeps every leaf aligned
            offsets[i] = stride
            stride += self.widths[i]
        return offsets, 8 * -(-stride // 8)

    def leaf_of(self, records: np.ndarray, i: int, offset: int) -> np.ndarray:
        """A leaf's column within records [rows, bytes]."""
        shape, dtype = self.shapes[i], self.dtypes[i]
        strides = (records.strides[0], *np.empty(shape, dtype).strides)
        return np.ndarray((records.shape[0], *shape), dtype, records.data, offset, strides=strides)

    def allocate(self) -> None:
        """Reserve the arrays: in memory, or as files of ``directory`` that the system pages in and out."""
        packed = [i for i, width in enumerate(self.widths) if width <= PACKED]
        header = 0 if self.directory else HEADER.itemsize  # keys stay in memory where the items do not
        offsets, stride = self.record(packed, header)
        records = self._reserve("records", (self.capacity, stride), np.dtype(np.uint8))
        if header:
            self.keys = np.ndarray(self.capacity, np.int64, records.data, 0, strides=(stride,))
            self.priorities = np.ndarray(self.capacity, np.float64, records.data, 8, strides=(stride,))
        else:
            self.keys, self.priorities = np.zeros(self.capacity, np.int64), np.zeros(self.capacity)
        for i, (shape, dtype) in enumerate(zip(self.shapes, self.dtypes)):
            if i in offsets:
                self.arrays.append(self.leaf_of(records, i, offsets[i]))
            else:
                self.arrays.append(self._reserve(f"leaf{i}", (self.capacity, *shape), dtype))

    def _reserve(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        if self.directory is None or 0 in shape:
            return aligned_zeros(shape, dtype)
        return map_file(self.directory / f"{name}.bin", shape, dtype)

    def flatten(self, items: Any) -> list[np.ndarray]:
        """The leaves of a batch of items, checked for keys alone."""
        names = self._flat_names
        if names is not None and type(items) is dict and len(items) == len(names):
            try:
                return [items[name] for name in names]
            except KeyError:
                pass
        return flatten_items(self.signature, items)

    def check(self, leaves: list[np.ndarray]) -> int:
        """The batch size of the leaves; DataError where a shape or dtype differs from the signature."""
        first = leaves[0]
        n = first.shape[0] if isinstance(first, np.ndarray) and first.ndim else -1
        for i, (leaf, (shape, dtype)) in enumerate(zip(leaves, self.outer)):
            if not isinstance(leaf, np.ndarray) or leaf.dtype != dtype or leaf.shape != (n, *shape):
                refuse_leaf(self.paths[i], leaf, n, shape, dtype)
        return n

    def tree(self, leaves: list[Any]) -> Any:
        """The leaves as a value of the signature."""
        return unflatten(self.signature, leaves)

    def empty(self, n: int) -> list[np.ndarray]:
        """Fresh arrays for ``n`` items as callers see them."""
        return [np.empty((n, *shape), dtype) for shape, dtype in self.outer]

    def intern(self, leaves: list[np.ndarray]) -> list[np.ndarray]:
        """The leaves with shared observations put into their pools, one reference taken for each frame."""
        stored = list(leaves)
        done: list[int] = []
        try:
            for i, pool in self.pools.items():
                ids = pool.intern(leaves[i].reshape(-1, *pool.space.shape))
                stored[i] = ids.reshape(leaves[i].shape[0], *self.shapes[i])
                done.append(i)
        except DataError:  # no room: those that were taken would never be given back
            for i in done:
                self.pools[i].release(stored[i])
            raise
        return stored

    def release(self, leaves: list[np.ndarray]) -> None:
        """Give back the references that ``intern`` took."""
        for i, pool in self.pools.items():
            pool.release(leaves[i])


def refuse_leaf(path: str, leaf: Any, n: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    array = np.asarray(leaf)
    expected = f"{dtype}[{', '.join(map(str, (n if n >= 0 else 'B', *shape)))}]"
    raise DataError(
        f"at {path!r}: {type(leaf).__name__} {array.dtype}{list(array.shape)} arrived, {expected} was expected "
        "(items come in batches: the first dimension is the batch). Cast or reshape it before inserting."
    )
