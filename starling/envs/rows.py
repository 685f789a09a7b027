"""Rows of batches: trees of arrays [B, …]."""

from __future__ import annotations

import numpy as np

from starling.core.trees import Tree, leaves, map_leaves

__all__ = ["put_row", "rows_from", "same_bits", "shared"]


def put_row(batch: Tree, i: int, row: Tree) -> None:
    """Write ``row`` [1, …] into row i of ``batch`` [B, …]."""
    if isinstance(batch, np.ndarray):
        batch[i] = row[0]
        return
    for target, source in zip(leaves(batch), leaves(row), strict=True):
        target[i] = source[0]


def rows_from(mask: np.ndarray, chosen: Tree, others: Tree) -> Tree:
    """A tree with the rows of ``chosen`` where ``mask`` holds, and of ``others`` elsewhere."""

    def merge(new: np.ndarray, old: np.ndarray) -> np.ndarray:
        rows = old.copy()
        rows[mask] = new[mask]
        return rows

    return map_leaves(merge, chosen, others)


def same_bits(left: Tree, right: Tree) -> bool:
    """Whether two trees of arrays agree to the last bit."""
    pairs = zip(leaves(left), leaves(right), strict=True)
    return all(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs)


def shared(value: bool, count: int) -> np.ndarray:
    """An array [count] that may be handed out again and again, because nobody can write to it."""
    array = np.full(count, value)
    array.flags.writeable = False
    return array
