"""The compiled loops of a table: insert, sample, update and remove many items at once.

Arrays that every loop shares: ``keys`` (the key of each slot; of an empty slot, −1 − its last key), ``priorities``,
``times`` (how often the slot's item was drawn), ``free`` (a stack of empty slots after its height and the number of
draws of all present items). A key is slot + capacity × generation, so that the slot follows from the key and a
removed key is recognised. ``keep`` is None, or what ``touch`` needs to keep the old contents of each array, in the
order of ``ARRAYS``.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from starling.data.tables import selectors
from starling.data.tables.copy_on_write import touch
from starling.data.tables.selectors import FIFO, LIFO, MAX_HEAP, MIN_HEAP, PRIORITIZED, UNIFORM
from starling.data.tables.sumtree import set_many

__all__ = [
    "ARRAYS",
    "DRAWS",
    "HEIGHT",
    "STACK",
    "check_priorities",
    "evict_one",
    "insert_many",
    "rarity",
    "release_slot",
    "sample_many",
    "update_many",
]

HEIGHT, DRAWS, STACK = range(3)
ARRAYS = (
    "keys", "priorities", "times", "free", "sampling_ints", "sampling_floats", "removing_ints", "removing_floats"
)  # fmt: skip
add, drop, change, pick = selectors.add, selectors.drop, selectors.change, selectors.pick


@njit(cache=True, nogil=True)
def check_priorities(priorities, limit):  # type: ignore[no-untyped-def]
    """Index of the first priority that is negative, not a number or above the limit, −1 where all are good; and the
    largest."""
    largest = 0.0
    for i in range(priorities.size):
        if not (priorities[i] >= 0.0 and priorities[i] <= limit):
            return i, largest
        largest = max(largest, priorities[i])
    return -1, largest


@njit(cache=True, nogil=True)
def _each(keep):  # type: ignore[no-untyped-def]
    """What is kept of each array: None where nothing is."""
    if keep is None:
        return None, None, None, None, None, None, None, None
    return keep


@njit(cache=True, nogil=True)
def release_slot(  # type: ignore[no-untyped-def]
    slot, keys, times, free, s_kind, s_ints, s_floats, s_levels, r_kind, r_ints, r_floats, r_levels, keep
):
    """Take the item of a slot out of both selectors and put the slot on the stack of empty ones."""
    k_keys, _, _, k_free, k_s_ints, k_s_floats, k_r_ints, k_r_floats = _each(keep)
    drop(s_kind, s_ints, s_floats, s_levels, slot, k_s_ints, k_s_floats)
    drop(r_kind, r_ints, r_floats, r_levels, slot, k_r_ints, k_r_floats)
    touch(keys, slot, k_keys)
    keys[slot] = -1 - keys[slot]
    touch(free, 0, k_free)
    free[DRAWS] -= times[slot]
    touch(free, STACK + free[HEIGHT], k_free)
    free[STACK + free[HEIGHT]] = slot
    free[HEIGHT] += 1


@njit(cache=True, nogil=True)
def evict_one(  # type: ignore[no-untyped-def]
    uniform, keys, times, free, s_kind, s_ints, s_floats, s_levels, r_kind, r_ints, r_floats, r_levels, keep
):
    """Remove the item that the remover picks; returns its slot."""
    slots, chance, rest, uniforms = np.empty(1, np.int64), np.empty(1), np.empty(1), np.empty(1)
    uniforms[0] = uniform
    pick(r_kind, r_ints, r_floats, r_levels, uniforms, 1, slots, chance, rest)
    release_slot(
        slots[0], keys, times, free, s_kind, s_ints, s_floats, s_levels, r_kind, r_ints, r_floats, r_levels, keep
    )
    return slots[0]


@njit(cache=True, nogil=True)
def insert_many(  # type: ignore[no-untyped-def]
    count, uniforms, new_priorities, slots, evicted,
    keys, priorities, times, free,
    s_kind, s_ints, s_floats, s_levels, s_weighing,
    r_kind, r_ints, r_floats, r_levels, r_weighing, keep,
):  # fmt: skip
    """Find a slot for each new item, making room where needed; ``evicted`` says which slots held another item.

    Returns how many items were evicted.
    """
    capacity = keys.size
    removed = 0
    k_keys, k_priorities, k_times, k_free, k_s_ints, k_s_floats, k_r_ints, k_r_floats = _each(keep)
    for i in range(count):
        evicted[i] = False
        if free[HEIGHT] == 0:
            evict_one(
                uniforms[i], keys, times, free,
                s_kind, s_ints, s_floats, s_levels, r_kind, r_ints, r_floats, r_levels, keep,
            )  # fmt: skip
            evicted[i] = True
            removed += 1
        touch(free, HEIGHT, k_free)
        free[HEIGHT] -= 1
        slot = free[STACK + free[HEIGHT]]
        slots[i] = slot
        touch(keys, slot, k_keys)
        keys[slot] = -1 - keys[slot] + capacity
        touch(priorities, slot, k_priorities)
        priorities[slot] = new_priorities[i]
        touch(times, slot, k_times)
        times[slot] = 0
        add(s_kind, s_ints, s_floats, s_levels, slot, new_priorities[i], s_weighing, k_s_ints, k_s_floats)
        add(r_kind, r_ints, r_floats, r_levels, slot, new_priorities[i], r_weighing, k_r_ints, k_r_floats)
    return removed


@njit(cache=True, nogil=True)
def sample_many(  # type: ignore[no-untyped-def]
    count, uniforms, slots, chances, rest, sampled_keys,
    keys, times, max_times, free,
    s_kind, s_ints, s_floats, s_levels,
    r_kind, r_ints, r_floats, r_levels, keep,
):  # fmt: skip
    """Draw ``count`` items, removing each that has been drawn ``max_times`` times (0: never).

    Prioritized draws are stratified: the i-th falls into the i-th of ``count`` equal parts of the total weight.
    Returns how many items were removed.
    """
    if s_kind == PRIORITIZED:
        for i in range(count):
            uniforms[i] = (i + uniforms[i]) / count
    if max_times == 0:
        pick(s_kind, s_ints, s_floats, s_levels, uniforms, count, slots, chances, rest)
        for i in range(count):
            sampled_keys[i] = keys[slots[i]]
        return 0
    removed = 0
    _, _, k_times, k_free, _, _, _, _ = _each(keep)
    for i in range(count):
        pick(
            s_kind, s_ints, s_floats, s_levels,
            uniforms[i : i + 1], 1, slots[i : i + 1], chances[i : i + 1], rest[i : i + 1],
        )  # fmt: skip
        slot = slots[i]
        sampled_keys[i] = keys[slot]
        touch(times, slot, k_times)
        times[slot] += 1
        touch(free, DRAWS, k_free)
        free[DRAWS] += 1
        if times[slot] >= max_times:
            release_slot(
                slot, keys, times, free,
                s_kind, s_ints, s_floats, s_levels, r_kind, r_ints, r_floats, r_levels, keep,
            )  # fmt: skip
            removed += 1
    return removed


@njit(cache=True, nogil=True)
def rarity(chances, count, weights):  # type: ignore[no-untyped-def]
    """(smallest chance) / chance. To the power of beta that is the importance weight, (items · chance) ** −beta divided
    by the largest of the batch: the number of items cancels."""
    rarest = chances[0]
    for i in range(count):
        rarest = min(rarest, chances[i])
    for i in range(count):
        weights[i] = rarest / chances[i]


@njit(cache=True, nogil=True)
def update_many(  # type: ignore[no-untyped-def]
    updated, new_priorities, new_weights, slots, weights, nodes,
    keys, priorities,
    s_kind, s_ints, s_floats, s_levels, s_weighing,
    r_kind, r_ints, r_floats, r_levels, r_weighing, keep,
):  # fmt: skip
    """Set the priority of each key that is still there; returns how many were.

    ``new_weights`` are the sampler's weights of the priorities, where that is prioritized.
    """
    capacity = keys.size
    found = 0
    _, k_priorities, _, _, k_s_ints, k_s_floats, k_r_ints, k_r_floats = _each(keep)
    for i in range(updated.size):
        slot = updated[i] % capacity
        if updated[i] < 0 or keys[slot] != updated[i]:
            continue
        touch(priorities, slot, k_priorities)
        priorities[slot] = new_priorities[i]
        slots[found] = slot
        if s_kind == PRIORITIZED:
            weights[found] = new_weights[i]
        elif s_kind in (MAX_HEAP, MIN_HEAP):
            change(s_kind, s_ints, s_floats, s_levels, slot, new_priorities[i], s_weighing, k_s_ints, k_s_floats)
        if r_kind != FIFO and r_kind != LIFO and r_kind != UNIFORM:
            change(r_kind, r_ints, r_floats, r_levels, slot, new_priorities[i], r_weighing, k_r_ints, k_r_floats)
        found += 1
    if s_kind == PRIORITIZED:
        set_many(s_floats, s_levels, slots, weights, found, nodes, k_s_floats)
    return found
