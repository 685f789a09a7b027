"""Whether the saved state of an index can be followed.

Compiled loops go where its numbers lead, without looking: into a slot, along a list, down a tree. So each slot must be
exactly where its key, both selectors and the stack of empty slots say it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from starling.data.tables.draw_kernels import DRAWS, HEIGHT, STACK
from starling.data.tables.selectors import FIFO, HEAD, LIFO, MAX_HEAP, PRIORITIZED, UNIFORM, SelectorState, walks_all
from starling.data.tables.sumtree import set_many
from starling.data.untrusted import LARGEST, Untrusted

if TYPE_CHECKING:
    from starling.data.tables.index import Index

__all__ = ["check_index"]

CLOSE = 1e-9  # relative: NumPy and compiled loops round powers differently


def check_index(index: Index, counters: Untrusted, arrays: Untrusted, priority_limit: float) -> None:
    """CheckpointError unless the index may go on from these; nothing changes."""
    size, extent = counters.integer("size", 0, index.capacity), counters.integer("extent", 0, index.capacity)
    inserts = counters.integer("inserts", size)
    evicted = counters.integer("evicted", 0, inserts - size)
    if counters.flag("ring"):
        counters.check(index.circular, "ring", "slots lie in a circle, which those of this table do not")
        filled = size == extent == min(inserts, index.capacity) and evicted == inserts - size
        counters.check(filled, "size", "a circle is filled from slot 0 on, and nothing leaves it")
        _check_circle(index, arrays, extent, priority_limit)
    else:
        _check_slots(index, arrays, size, extent, priority_limit)


def _check_circle(index: Index, arrays: Untrusted, extent: int, priority_limit: float) -> None:
    priorities = arrays.array("priorities", (extent,), np.float64, 0.0, priority_limit)
    if index.sampler.kind == PRIORITIZED:
        weights = arrays.array("weights", (extent,), np.float64)
        _check_weights(arrays, "weights", weights, index.sampler.weights(priorities))


def _check_slots(index: Index, arrays: Untrusted, size: int, extent: int, priority_limit: float) -> None:
    capacity, own = index.capacity, index.arrays()
    saved = {name: arrays.array(name, array.shape, array.dtype) for name, array in own.items()}
    keys, times, free = saved["keys"], saved["times"], saved["free"]
    arrays.within("keys", keys, -LARGEST, LARGEST)
    live = keys >= 0
    last = np.where(live, keys, -1 - keys)
    arrays.check((last % capacity == np.arange(capacity)).all(), "keys", "a key leads to its slot")
    inside = np.count_nonzero(live[:extent]) == np.count_nonzero(live) == size
    arrays.check(inside, "keys", f"{size} items lie in the first {extent} slots, and none elsewhere")
    arrays.within("priorities", saved["priorities"], 0.0, priority_limit)
    arrays.within("times", times, 0, max(index.max_times, 1))
    arrays.within("times", times[live], 0, max(index.max_times - 1, 0))
    arrays.exactly("free", int(free[HEIGHT]), free[STACK:], ~live)
    arrays.check(free[DRAWS] == times[live].sum(), "free", "it has the number of draws of the present items")
    for name, selector in (("sampling", index.sampling), ("removing", index.removing)):
        _check_selector(arrays, name, selector, live, saved["priorities"])


def _check_selector(
    arrays: Untrusted, name: str, state: SelectorState, live: np.ndarray, priorities: np.ndarray
) -> None:
    """The items under a selector are those that are there, in an order that it can have."""
    kind, capacity, size = state.selector.kind, live.size, np.count_nonzero(live)
    where, ints, floats = f"{name}_ints", arrays.get(f"{name}_ints"), arrays.get(f"{name}_floats")
    if kind in (FIFO, LIFO):
        arrays.check(walks_all(np.array(ints), live, size), where, "its list leads through all items, there and back")
        return
    members = ints[HEAD : HEAD + size]
    arrays.exactly(where, int(ints[0]), ints[HEAD : HEAD + capacity], live)
    arrays.check((ints[HEAD + capacity + members] == np.arange(size)).all(), where, "it knows the place of each item")
    if kind == PRIORITIZED:
        _check_tree(arrays, f"{name}_floats", state, live, priorities)
    elif kind != UNIFORM:
        keys = floats[members]
        sort_keys = -priorities if kind == MAX_HEAP else priorities
        arrays.check((keys == sort_keys[members]).all(), f"{name}_floats", "items are sorted by their priorities")
        parents = keys[(np.arange(1, size) - 1) // 2]
        arrays.check((parents <= keys[1:]).all(), where, "no item lies above a smaller one in the heap")


def _check_tree(arrays: Untrusted, name: str, state: SelectorState, live: np.ndarray, priorities: np.ndarray) -> None:
    """The tree is the one that its weights lead to: a draw finds its way by the sums alone."""
    tree, levels, slots = arrays.get(name), state.levels, np.flatnonzero(live)
    weights = tree[levels[-2] : levels[-2] + live.size][slots]
    _check_weights(arrays, name, weights, state.selector.weights(priorities[slots]))
    anew = np.zeros(tree.size)
    set_many(anew, levels, slots, weights, slots.size, np.empty(slots.size, np.int64), None)
    arrays.check(np.array_equal(anew, tree), name, "the sums in the tree are those of its weights")


def _check_weights(arrays: Untrusted, name: str, weights: np.ndarray, expected: np.ndarray) -> None:
    arrays.check(np.allclose(weights, expected, CLOSE, 0.0), name, "weights follow from the priorities")
