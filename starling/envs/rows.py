"""Rows of batches: trees of arrays [B, …]."""

from __future__ import annotations

from typing import Any

import numpy as np

from starling.core.trees import Tree, leaves, map_leaves

__all__ = ["put_row", "put_rows", "rows_from", "same_bits", "shared", "with_rows"]


def put_row(batch: Tree, i: int, row: Tree) -> None:
    """Write ``row`` [1, …] into row i of ``batch`` [B, …]."""
    if isinstance(batch, np.ndarray):
        batch[i] = row[0]
        return
    for target, source in zip(leaves(batch), leaves(row), strict=True):
        target[i] = source[0]


def put_rows(kept: Tree, places: Any, batch: Tree, rows: np.ndarray) -> None:
    """Write ``rows`` of a batch [B, …] to ``places`` of ``kept``."""
    for target, source in zip(leaves(kept), leaves(batch), strict=True):
        target[places] = source[rows]


def with_rows(batch: Tree, rows: np.ndarray, few: Tree) -> Tree:
    """A copy of ``batch`` [B, …] with ``few`` [rows, …] in some of its rows."""

    def placed(old: np.ndarray, new: np.ndarray) -> np.ndarray:
        whole = old.copy()
        whole[rows] = new
        return whole

    return map_leaves(placed, batch, few)


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
