"""A sum tree with eight children a node: weights in, indices drawn in proportion to them.

An inner node is sixteen float64: the weights of its eight children, then their running sums; a draw reads the sums
alone, one cache line a level. A node of leaves is its eight weights, summed up while drawing. So ten million weights
cost eight cache lines a draw. Running sums are always made anew from the weights: they never drift, and a draw never
lands on a weight of zero. The levels lie one after the other in one array, the root first.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from starling.data.tables.copy_on_write import touch
from starling.data.tables.kernels import count_at_most

__all__ = ["FANOUT", "draw_many", "leaf_weight", "set_many", "set_one", "total_weight", "tree_levels", "tree_size"]

FANOUT = 8
NODE = 2 * FANOUT
BELOW_ONE = 1.0 - 2.0**-53


def tree_levels(leaves: int) -> np.ndarray:
    """Where each level starts, the root's first, and the end of the last."""
    nodes = [max(1, -(-leaves // FANOUT))]
    while nodes[-1] > 1 or len(nodes) == 1:  # at least one inner node, whose last sum is the total
        nodes.append(-(-nodes[-1] // FANOUT))
    sizes = [NODE * n for n in nodes[:0:-1]] + [FANOUT * nodes[0]]
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def tree_size(leaves: int) -> int:
    """Numbers in the tree's array."""
    return int(tree_levels(leaves)[-1])


@njit(cache=True, nogil=True, inline="always")
def total_weight(tree):  # type: ignore[no-untyped-def]
    return tree[NODE - 1]


@njit(cache=True, nogil=True, inline="always")
def leaf_weight(tree, levels, leaf):  # type: ignore[no-untyped-def]
    return tree[levels[levels.size - 2] + leaf]


@njit(cache=True, nogil=True, inline="always")
def _sum_leaves(tree, start):  # type: ignore[no-untyped-def]
    """The weight of a node of leaves, added from left to right as a draw does."""
    first = np.uintp(start)  # unsigned here and below: numba then leaves out the test for negative indices
    total = tree[first]
    for j in range(1, FANOUT):
        total += tree[first + np.uintp(j)]
    return total


@njit(cache=True, nogil=True, inline="always")
def _sum_node(tree, start):  # type: ignore[no-untyped-def]
    """Renew an inner node's running sums and return its weight."""
    total = 0.0
    first = np.uintp(start)
    for j in range(FANOUT):
        total += tree[first + np.uintp(j)]
        tree[first + np.uintp(FANOUT + j)] = total
    return total


@njit(cache=True, nogil=True)
def set_one(tree, levels, leaf, weight, keep):  # type: ignore[no-untyped-def]
    """Give one leaf its weight and renew the sums above it."""
    bottom = levels.size - 2
    touch(tree, levels[bottom] + leaf, keep)
    tree[levels[bottom] + leaf] = weight
    node = leaf // FANOUT
    value = _sum_leaves(tree, levels[bottom] + node * FANOUT)
    for level in range(bottom - 1, -1, -1):
        start = levels[level] + (node // FANOUT) * NODE
        touch(tree, start, keep)  # a node lies within one page
        tree[start + node % FANOUT] = value
        value = _sum_node(tree, start)
        node //= FANOUT


@njit(cache=True, nogil=True)
def set_many(tree, levels, leaves, weights, count, nodes, keep):  # type: ignore[no-untyped-def]
    """Give ``count`` leaves their weights; ``nodes`` is scratch of that length, ``keep`` as in ``touch``.

    Level by level: neighbours in ``leaves`` that share a node renew it once.
    """
    bottom = levels.size - 2
    live = 0
    for i in range(count):
        touch(tree, levels[bottom] + leaves[i], keep)
        tree[levels[bottom] + leaves[i]] = weights[i]
        node = leaves[i] // FANOUT
        if live == 0 or nodes[live - 1] != node:
            nodes[live] = node
            live += 1
    for level in range(bottom, 0, -1):
        kept = 0
        for i in range(live):
            node = nodes[i]
            if level == bottom:
                value = _sum_leaves(tree, levels[level] + node * FANOUT)
            else:
                value = _sum_node(tree, levels[level] + node * NODE)
            parent = node // FANOUT
            touch(tree, levels[level - 1] + parent * NODE, keep)
            tree[levels[level - 1] + parent * NODE + node % FANOUT] = value
            if kept == 0 or nodes[kept - 1] != parent:
                nodes[kept] = parent
                kept += 1
        live = kept
    if count > 0:
        _sum_node(tree, 0)


@njit(cache=True, nogil=True)
def draw_many(tree, levels, uniforms, count, leaves, rest):  # type: ignore[no-untyped-def]
    """Fill ``leaves`` with ``count`` indices drawn by ``uniforms`` in [0, 1).

    All draws go down one level before any goes further: their cache misses overlap. ``rest`` is scratch: how far into
    its node a draw falls, kept below the node's own sum, because rounding may carry it there.
    """
    total = total_weight(tree)
    bottom = levels.size - 2
    start = tree.ctypes.data
    for i in range(count):
        leaves[i] = 0
        rest[i] = uniforms[i] * total
    for level in range(bottom):
        for i in range(count):
            sums = np.uintp(levels[level] + leaves[i] * NODE + FANOUT)
            u = min(rest[i], tree[sums + np.uintp(FANOUT - 1)] * BELOW_ONE)
            child = count_at_most(start + 8 * np.int64(sums), u)
            # Where child is 0 this reads the node's last weight and drops it: cheaper than a branch.
            before = tree[sums + np.uintp(child) - np.uintp(1)] * (child > 0)
            leaves[i] = leaves[i] * FANOUT + child
            rest[i] = u - before
    for i in range(count):
        first = np.uintp(levels[bottom] + leaves[i] * FANOUT)
        u = min(rest[i], _sum_leaves(tree, first) * BELOW_ONE)
        passed = tree[first]
        place = 0
        for j in range(1, FANOUT):
            place += passed <= u
            passed += tree[first + np.uintp(j)]
        leaves[i] = leaves[i] * FANOUT + place
