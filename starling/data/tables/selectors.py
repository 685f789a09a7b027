"""Selectors: which item is drawn, and which makes room. All compiled, all O(log n) or better.

A selector is a kind (an integer), an int64 array and a float64 array, so that one compiled loop serves every pair
of sampler and remover, and a selector's exact state is the contents of two arrays. ``k_ints`` and ``k_floats`` are what
``touch`` needs to keep the old contents of each.

    kind                      integers                                floats
    uniform                   count, -, members, position of slot     -
    prioritized(alpha)        count, -, members, position of slot     sum tree of (priority + epsilon) ** alpha
    fifo, lifo                oldest, newest, next, previous          -
    max_heap, min_heap        count, -, heap, position of slot        sort key of slot
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from starling.core.errors import ConfigError, UnknownNameError
from starling.data.tables.copy_on_write import touch
from starling.data.tables.layout import aligned_zeros
from starling.data.tables.sumtree import draw_many, leaf_weight, set_one, total_weight, tree_levels, tree_size

__all__ = [
    "FIFO",
    "LIFO",
    "MAX_HEAP",
    "MIN_HEAP",
    "PRIORITIZED",
    "UNIFORM",
    "Selector",
    "SelectorState",
    "add",
    "as_selector",
    "change",
    "drop",
    "pick",
    "prioritized",
    "walks_all",
    "weight",
]

UNIFORM, PRIORITIZED, FIFO, LIFO, MAX_HEAP, MIN_HEAP = range(6)
KINDS = {
    "uniform": UNIFORM,
    "prioritized": PRIORITIZED,
    "fifo": FIFO,
    "lifo": LIFO,
    "max_heap": MAX_HEAP,
    "min_heap": MIN_HEAP,
}
HEAD = 2  # integers before the two arrays of one number per slot
EPSILON = 1e-6  # as in OpenAI Baselines and RLlib; Schaul et al. (2016) say "a small positive constant"
LARGEST_WEIGHT = 1e200  # far enough from overflow that no sum of weights reaches it


@dataclass(frozen=True)
class Selector:
    """A rule that picks one of the items.

    The prioritized rule picks an item with probability ∝ (priority + epsilon) ** alpha. An item whose error happened to
    be zero would else never be drawn again, and its priority never corrected.
    """

    name: str
    alpha: float = 1.0
    epsilon: float = EPSILON

    def __post_init__(self) -> None:
        if self.name not in KINDS:
            raise UnknownNameError("selector", self.name, KINDS)
        if not (np.isfinite(self.alpha) and self.alpha >= 0):
            raise ConfigError(f"alpha={self.alpha}; the exponent of priorities must be finite and at least 0.")
        if not 0 <= self.epsilon <= 1:
            raise ConfigError(f"epsilon={self.epsilon}; what is added to priorities lies between 0 and 1, near 0.")

    @property
    def kind(self) -> int:
        return KINDS[self.name]

    @property
    def random(self) -> bool:
        """Whether picking needs a random number."""
        return self.kind in (UNIFORM, PRIORITIZED)

    @property
    def uses_priorities(self) -> bool:
        return self.kind in (PRIORITIZED, MAX_HEAP, MIN_HEAP)

    @property
    def weighing(self) -> tuple[float, float]:
        """What ``weight`` needs."""
        return float(self.alpha), float(self.epsilon)

    def weights(self, priorities: np.ndarray) -> np.ndarray:
        """(priority + epsilon) ** alpha of each item."""
        return (priorities + self.epsilon) ** self.alpha

    def nbytes(self, capacity: int) -> int:
        floats = {PRIORITIZED: tree_size(capacity), MAX_HEAP: capacity, MIN_HEAP: capacity}.get(self.kind, 0)
        return 8 * (HEAD + 2 * capacity + floats)


def prioritized(alpha: float = 0.6, epsilon: float = EPSILON) -> Selector:
    """Draw an item with probability (priority + epsilon) ** alpha / Σ; see ``Selector``."""
    return Selector("prioritized", alpha, epsilon)


def as_selector(value: Selector | str) -> Selector:
    """A selector from its name; ``"prioritized"`` has the exponent 0.6."""
    if isinstance(value, Selector):
        return value
    return prioritized() if value == "prioritized" else Selector(value)


class SelectorState:
    """The arrays of one selector over ``capacity`` slots, empty at first."""

    __slots__ = ("floats", "ints", "levels", "selector")

    def __init__(self, selector: Selector, capacity: int) -> None:
        self.selector = selector
        self.levels = tree_levels(capacity if selector.kind == PRIORITIZED else 1)
        sizes = {PRIORITIZED: tree_size(capacity), MAX_HEAP: capacity, MIN_HEAP: capacity}
        self.floats = aligned_zeros((sizes.get(selector.kind, 0),), np.dtype(np.float64))
        self.ints = np.full(HEAD + 2 * capacity, -1, np.int64)
        if selector.kind not in (FIFO, LIFO):
            self.ints[0] = 0

    def clear(self) -> None:
        """Forget all items."""
        self.ints[:] = -1
        self.floats[:] = 0.0
        if self.selector.kind not in (FIFO, LIFO):
            self.ints[0] = 0


@njit(cache=True, nogil=True)
def _before(floats, a, b):  # type: ignore[no-untyped-def]
    return floats[a] < floats[b]


@njit(cache=True, nogil=True)
def _put(array, i, value, keep):  # type: ignore[no-untyped-def]
    touch(array, i, keep)
    array[i] = value


@njit(cache=True, nogil=True)
def _place(ints, capacity, index, slot, k_ints):  # type: ignore[no-untyped-def]
    _put(ints, HEAD + index, slot, k_ints)
    _put(ints, HEAD + capacity + slot, index, k_ints)


@njit(cache=True, nogil=True)
def _sift(ints, floats, capacity, index, k_ints):  # type: ignore[no-untyped-def]
    """Move the heap's entry at ``index`` up or down to where it belongs."""
    count = ints[0]
    slot = ints[HEAD + index]
    while index > 0:
        parent = (index - 1) // 2
        if not _before(floats, slot, ints[HEAD + parent]):
            break
        _place(ints, capacity, index, ints[HEAD + parent], k_ints)
        index = parent
    while True:
        child = 2 * index + 1
        if child >= count:
            break
        if child + 1 < count and _before(floats, ints[HEAD + child + 1], ints[HEAD + child]):
            child += 1
        if not _before(floats, ints[HEAD + child], slot):
            break
        _place(ints, capacity, index, ints[HEAD + child], k_ints)
        index = child
    _place(ints, capacity, index, slot, k_ints)


@njit(cache=True, nogil=True)
def _sort_key(kind, priority):  # type: ignore[no-untyped-def]
    return -priority if kind == MAX_HEAP else priority


@njit(cache=True, nogil=True)
def weight(priority, weighing):  # type: ignore[no-untyped-def]
    """(priority + epsilon) ** alpha."""
    alpha, epsilon = weighing
    return (priority + epsilon) ** alpha


@njit(cache=True, nogil=True)
def add(kind, ints, floats, levels, slot, priority, weighing, k_ints, k_floats):  # type: ignore[no-untyped-def]
    """Let an item in."""
    capacity = (ints.size - HEAD) // 2
    if kind in (FIFO, LIFO):
        newest = ints[1]
        _put(ints, HEAD + slot, -1, k_ints)
        _put(ints, HEAD + capacity + slot, newest, k_ints)
        _put(ints, HEAD + newest if newest >= 0 else 0, slot, k_ints)
        _put(ints, 1, slot, k_ints)
        return
    count = ints[0]
    _place(ints, capacity, count, slot, k_ints)
    _put(ints, 0, count + 1, k_ints)
    if kind == PRIORITIZED:
        set_one(floats, levels, slot, weight(priority, weighing), k_floats)
    elif kind != UNIFORM:
        _put(floats, slot, _sort_key(kind, priority), k_floats)
        _sift(ints, floats, capacity, count, k_ints)


@njit(cache=True, nogil=True)
def drop(kind, ints, floats, levels, slot, k_ints, k_floats):  # type: ignore[no-untyped-def]
    """Take an item out."""
    capacity = (ints.size - HEAD) // 2
    if kind in (FIFO, LIFO):
        after, before = ints[HEAD + slot], ints[HEAD + capacity + slot]
        _put(ints, HEAD + before if before >= 0 else 0, after, k_ints)
        _put(ints, HEAD + capacity + after if after >= 0 else 1, before, k_ints)
        return
    last = ints[0] - 1
    index = ints[HEAD + capacity + slot]
    _put(ints, 0, last, k_ints)
    if index != last:
        _place(ints, capacity, index, ints[HEAD + last], k_ints)
        if kind in (MAX_HEAP, MIN_HEAP):
            _sift(ints, floats, capacity, index, k_ints)
    if kind == PRIORITIZED:
        set_one(floats, levels, slot, 0.0, k_floats)


@njit(cache=True, nogil=True)
def change(kind, ints, floats, levels, slot, priority, weighing, k_ints, k_floats):  # type: ignore[no-untyped-def]
    """Give an item another priority."""
    if kind == PRIORITIZED:
        set_one(floats, levels, slot, weight(priority, weighing), k_floats)
    elif kind in (MAX_HEAP, MIN_HEAP):
        capacity = (ints.size - HEAD) // 2
        _put(floats, slot, _sort_key(kind, priority), k_floats)
        _sift(ints, floats, capacity, ints[HEAD + capacity + slot], k_ints)


@njit(cache=True, nogil=True)
def pick(kind, ints, floats, levels, uniforms, count, slots, chances, rest):  # type: ignore[no-untyped-def]
    """Fill ``slots`` with ``count`` picks and ``chances`` with the probability of each.

    ``uniforms`` are numbers in [0, 1). Where every priority is zero the prioritized rule picks uniformly.
    """
    if kind == PRIORITIZED and total_weight(floats) > 0.0:
        draw_many(floats, levels, uniforms, count, slots, rest)
        scale = 1.0 / total_weight(floats)
        for i in range(count):
            chances[i] = leaf_weight(floats, levels, slots[i]) * scale
    elif kind in (UNIFORM, PRIORITIZED):
        live = ints[0]
        for i in range(count):
            slots[i] = ints[HEAD + np.int64(uniforms[i] * live)]
            chances[i] = 1.0 / live
    else:
        chosen = ints[0] if kind == FIFO else ints[1] if kind == LIFO else ints[HEAD]
        for i in range(count):
            slots[i] = chosen
            chances[i] = 1.0


@njit(cache=True, nogil=True)
def walks_all(ints, live, size):  # type: ignore[no-untyped-def]
    """Whether the list of a fifo or lifo selector leads through ``size`` items, each once, and knows the way back."""
    capacity = live.size
    before, slot = -1, ints[0]
    for _ in range(size):  # who comes twice would have two before it
        if slot < 0 or slot >= capacity or not live[slot] or ints[HEAD + capacity + slot] != before:
            return False
        before, slot = slot, ints[HEAD + slot]
    return slot == -1 and ints[1] == before
