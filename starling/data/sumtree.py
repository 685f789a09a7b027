"""A sum tree with eight children a node: weights in, indices drawn in proportion to them.

A node is sixteen float64: the weights of its eight children, then their running sums. A draw reads the sums alone,
one cache line a level, so that ten million weights cost eight lines. A running sum is always made anew from the
weights: sums never drift, and a draw never lands on a weight of zero. The levels lie one after the other in one
array, the root first; the weights in the last level are the leaves.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["FANOUT", "draw_many", "leaf_weight", "set_many", "set_one", "total_weight", "tree_levels", "tree_size"]

FANOUT = 8
NODE = 2 * FANOUT
BELOW_ONE = 1.0 - 2.0**-53


def tree_levels(leaves: int) -> np.ndarray:
    """Where each level starts, the root's first, and the end of the last."""
    nodes = [max(1, -(-leaves // FANOUT))]
    while nodes[-1] > 1:
        nodes.append(-(-nodes[-1] // FANOUT))
    return np.concatenate([[0], np.cumsum(nodes[::-1])]).astype(np.int64) * NODE


def tree_size(leaves: int) -> int:
    """Numbers in the tree's array."""
    return int(tree_levels(leaves)[-1])


@njit(cache=True, nogil=True, inline="always")
def total_weight(tree):  # type: ignore[no-untyped-def]
    return tree[NODE - 1]


@njit(cache=True, nogil=True, inline="always")
def leaf_weight(tree, levels, leaf):  # type: ignore[no-untyped-def]
    return tree[levels[levels.size - 2] + (leaf // FANOUT) * NODE + leaf % FANOUT]


@njit(cache=True, nogil=True, inline="always")
def _sum_node(tree, start):  # type: ignore[no-untyped-def]
    """Renew a node's running sums and return its weight."""
    total = 0.0
    first = np.uintp(start)
    for j in range(FANOUT):
        total += tree[first + np.uintp(j)]
        tree[first + np.uintp(FANOUT + j)] = total
    return total


@njit(cache=True, nogil=True)
def set_one(tree, levels, leaf, weight):  # type: ignore[no-untyped-def]
    """Give one leaf its weight and renew the sums above it."""
    node, value = leaf, weight
    for level in range(levels.size - 2, -1, -1):
        start = levels[level] + (node // FANOUT) * NODE
        tree[start + node % FANOUT] = value
        value = _sum_node(tree, start)
        node //= FANOUT


@njit(cache=True, nogil=True)
def set_many(tree, levels, leaves, weights, count, nodes):  # type: ignore[no-untyped-def]
    """Give ``count`` leaves their weights; ``nodes`` is scratch of that length.

    Level by level: neighbours in ``leaves`` that share a node renew it once.
    """
    bottom = levels[levels.size - 2]
    live = 0
    for i in range(count):
        node = leaves[i] // FANOUT
        tree[bottom + node * NODE + leaves[i] % FANOUT] = weights[i]
        if live == 0 or nodes[live - 1] != node:
            nodes[live] = node
            live += 1
    for level in range(levels.size - 2, -1, -1):
        kept = 0
        for i in range(live):
            node = nodes[i]
            value = _sum_node(tree, levels[level] + node * NODE)
            if level > 0:
                parent = node // FANOUT
                tree[levels[level - 1] + parent * NODE + node % FANOUT] = value
                if kept == 0 or nodes[kept - 1] != parent:
                    nodes[kept] = parent
                    kept += 1
        live = kept


@njit(cache=True, nogil=True)
def draw_many(tree, levels, uniforms, count, leaves, rest):  # type: ignore[no-untyped-def]
    """Fill ``leaves`` with ``count`` indices drawn by ``uniforms`` in [0, 1); ``rest`` is scratch.

    All draws go down one level before any goes further: their cache misses overlap. ``rest`` is kept below the
    node's own sum, because rounding may carry it there.
    """
    total = total_weight(tree)
    for i in range(count):
        leaves[i] = 0
        rest[i] = uniforms[i] * total
    for level in range(levels.size - 1):
        for i in range(count):
            sums = np.uintp(levels[level] + leaves[i] * NODE + FANOUT)  # unsigned: no test for negative indices
            u = min(rest[i], tree[sums + np.uintp(FANOUT - 1)] * BELOW_ONE)
            child = np.uintp(0)
            for j in range(FANOUT - 1):
                child += np.uintp(tree[sums + np.uintp(j)] <= u)
            # Where child is 0 this reads the node's last weight and drops it: cheaper than a branch.
            before = tree[sums + child - np.uintp(1)] * (child > 0)
            leaves[i] = leaves[i] * FANOUT + np.int64(child)
            rest[i] = u - before
