"""The index of a table: which slot holds which item, with what priority, and whose turn it is.

The index knows nothing of the items' contents. Its exact state is a handful of arrays and numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from starling.data.tables import draw_kernels as kernels
from starling.data.tables.copy_on_write import FrozenArrays, Ranges, touch_range
from starling.data.tables.sample import Sample
from starling.data.tables.selectors import HEAD, PRIORITIZED, Selector, SelectorState
from starling.data.tables.sumtree import set_many, set_one
from starling.data.untrusted import Untrusted

__all__ = ["Index"]


class Index:
    """Slots 0 … capacity − 1 under a sampler and a remover.

    First in, first out over slots in a circle needs no lists: while ``ring`` holds, slot = (number of the insert) %
    capacity and the present items fill the slots from 0 on. Removing out of order gives that up for good. ``keys`` and
    ``priorities`` are the caller's arrays, because they may lie among the items.
    """

    def __init__(
        self,
        keys: np.ndarray,
        priorities: np.ndarray,
        sampler: Selector,
        remover: Selector,
        max_times: int,
        ring: bool,
    ) -> None:
        capacity = keys.size
        self.capacity, self.sampler, self.remover, self.max_times = capacity, sampler, remover, max_times
        self.keys, self.priorities = keys, priorities
        self.times = np.zeros(capacity, np.int32)
        self.free = _all_free(capacity)
        self.sampling = SelectorState(sampler, capacity)
        self.removing = SelectorState(remover, capacity)
        self.circular = ring and remover.name == "fifo" and not max_times and sampler.random
        self._begin()
        self._pair = self._selector_arguments()
        self._scratch = _scratch(1)
        self._keep: tuple[Any, ...] | None = None  # copies on write of each array, while frozen

    @staticmethod
    def nbytes(capacity: int, sampler: Selector, remover: Selector) -> int:
        return sampler.nbytes(capacity) + remover.nbytes(capacity) + 28 * capacity

    def clear(self) -> None:
        """Forget all items."""
        self.times[:] = 0
        self.free[:] = _all_free(self.capacity)
        self.sampling.clear()
        self.removing.clear()
        self._begin()

    def _begin(self) -> None:
        self.keys[:] = -1 - np.arange(self.capacity, dtype=np.int64)
        self.priorities[:] = 0.0
        self.size = 0
        self.extent = 0  # slots ever used: those beyond hold nothing
        self.evicted = 0
        self.ring = self.circular
        if self.ring:
            self.sampling.ints[HEAD:] = np.tile(np.arange(self.capacity), 2)

    def _selector_arguments(self) -> tuple[Any, ...]:
        s, r = self.sampling, self.removing
        return (
            (s.selector.kind, s.ints, s.floats, s.levels),
            (r.selector.kind, r.ints, r.floats, r.levels),
        )

    def scratch(self, n: int) -> tuple[np.ndarray, ...]:
        if self._scratch[0].size < n:
            self._scratch = _scratch(max(n, 2 * self._scratch[0].size))
        return self._scratch

    def claim_run(self, number: int, n: int, priorities: np.ndarray | float) -> int:
        """Slots for ``n`` items in the circle, from the returned one on; they must not cross the circle's end."""
        start = number % self.capacity
        end = start + n
        if self._keep is not None and n:
            touch_range(self.priorities, start, end, self._keep[kernels.ARRAYS.index("priorities")])
        if n == 1:
            self.keys[start] = number + self.capacity
            self.priorities[start] = priorities if isinstance(priorities, float) else priorities[0]
        else:
            self.keys[start:end] = np.arange(number + self.capacity, number + self.capacity + n)
            self.priorities[start:end] = priorities
        if end > self.extent:
            self.evicted -= end - self.extent
            self.extent = self.size = end
            self.sampling.ints[0] = end
        self.evicted += n
        if self.sampler.kind == PRIORITIZED:
            self._weigh_run(start, end)
        return start

    def _weigh_run(self, start: int, end: int) -> None:
        """Bring the sum tree in line with the priorities of a run of slots."""
        tree, levels, n = self.sampling.floats, self.sampling.levels, end - start
        keep = None if self._keep is None else self._keep[kernels.ARRAYS.index("sampling_floats")]
        if n == 1:
            set_one(tree, levels, start, self.sampler.weights(self.priorities[start]), keep)
            return
        slots, weights, nodes = self.scratch(n)[:3]
        slots[:n] = np.arange(start, end)
        weights[:n] = self.sampler.weights(self.priorities[start:end])
        set_many(tree, levels, slots, weights, n, nodes, keep)

    def claim(self, n: int, priorities: np.ndarray | float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Slots for ``n`` items, and which of them held another item until now. Both are scratch."""
        slots, weights, _, evicted, uniforms = self.scratch(n)
        weights[:n] = priorities
        if self.remover.random:
            rng.random(out=uniforms[:n])
        sampling, removing = self._pair
        removed = kernels.insert_many(
            n, uniforms, weights, slots, evicted, self.keys, self.priorities, self.times, self.free,
            *sampling, self.sampler.weighing, *removing, self.remover.weighing, self._keep,
        )  # fmt: skip
        self.evicted += removed
        self.size += n - removed
        self.extent = max(self.extent, int(slots[:n].max(initial=-1)) + 1)
        return slots[:n], evicted[:n]

    def draw(self, out: Sample, n: int, rng: np.random.Generator) -> int:
        """Fill the keys, slots and probabilities of ``out``; returns how many items left the table by that."""
        if self.sampler.random:
            rng.random(out=out.uniforms)
        sampling, removing = self._pair
        removed = kernels.sample_many(
            n, out.uniforms, out.slots, out.probabilities, out.rest, out.keys,
            self.keys, self.times, self.max_times, self.free, *sampling, *removing, self._keep,
        )  # fmt: skip
        self.size -= removed
        return int(removed)

    def draws_left(self) -> int | None:
        """How often the present items may still be drawn; None without a limit."""
        return self.size * self.max_times - int(self.free[kernels.DRAWS]) if self.max_times else None

    def update(self, keys: np.ndarray, priorities: np.ndarray) -> int:
        """Set priorities by key; returns how many of the keys are present."""
        slots, weights, nodes = self.scratch(keys.size)[:3]
        sampling, removing = self._pair
        new_weights = self.sampler.weights(priorities) if self.sampler.kind == PRIORITIZED else priorities
        found = kernels.update_many(
            keys, priorities, new_weights, slots, weights, nodes, self.keys, self.priorities,
            *sampling, self.sampler.weighing, *removing, self.remover.weighing, self._keep,
        )  # fmt: skip
        return int(found)

    def slot_of(self, key: int) -> int:
        """The slot of a present key, −1 of any other."""
        slot = key % self.capacity
        return slot if key >= 0 and self.keys[slot] == key else -1

    def remove(self, slot: int) -> None:
        sampling, removing = self._pair
        kernels.release_slot(slot, self.keys, self.times, self.free, *sampling, *removing, self._keep)
        self.size -= 1

    def evict(self, rng: np.random.Generator) -> int:
        """Remove the item whose turn it is; returns its slot."""
        sampling, removing = self._pair
        uniform = rng.random() if self.remover.random else 0.0
        slot = kernels.evict_one(uniform, self.keys, self.times, self.free, *sampling, *removing, self._keep)
        self.size -= 1
        self.evicted += 1
        return int(slot)

    def leave_ring(self, inserts: int) -> None:
        """Make the lists that a circle of slots does without, so that items may go in any order."""
        if not self.ring:
            return
        self.ring = False
        capacity, ints = self.capacity, self.removing.ints
        order = np.arange(inserts - self.size, inserts) % capacity
        if self.size:
            ints[0], ints[1] = order[0], order[-1]
            ints[HEAD + order[:-1]] = order[1:]
            ints[HEAD + order[-1]] = -1
            ints[HEAD + capacity + order[1:]] = order[:-1]
            ints[HEAD + capacity + order[0]] = -1
        self.free[kernels.HEIGHT] = capacity - self.size

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays that make up the state, by name."""
        s, r = self.sampling, self.removing
        state = (self.keys, self.priorities, self.times, self.free, s.ints, s.floats, r.ints, r.floats)
        return dict(zip(kernels.ARRAYS, state))

    def numbers(self) -> dict[str, int]:
        """The numbers that make up the state, by name."""
        return {"size": self.size, "extent": self.extent, "evicted": self.evicted, "ring": int(self.ring)}

    def ranges(self, ring: bool, extent: int) -> Ranges:
        """What of the arrays is saved, by name. In the circle all follow from the priorities and the weights of the sum
        tree."""
        if not ring:
            return {name: (name, 0, array.size) for name, array in self.arrays().items()}
        weights = {}
        if self.sampler.kind == PRIORITIZED:
            start = int(self.sampling.levels[-2])
            weights = {"weights": ("sampling_floats", start, start + extent)}
        return {"priorities": ("priorities", 0, extent), **weights}

    def freeze(self, frozen: FrozenArrays) -> None:
        """Keep the arrays as they are now, to be read while the index goes on; ``thaw`` when that is done."""
        frozen.begin(self.ranges(self.ring, self.extent))
        self._keep = frozen.keep

    def thaw(self) -> None:
        self._keep = None

    def restore(self, counters: Untrusted, arrays: Untrusted) -> None:
        """Continue from ``numbers`` and what ``ranges`` named, which ``check_index`` let pass."""
        self.clear()  # the lists that a circle does without are as in a new table
        self.size, self.extent = counters.integer("size"), counters.integer("extent")
        self.evicted, self.ring = counters.integer("evicted"), counters.flag("ring")
        if not self.ring:
            for name, array in self.arrays().items():
                array[...] = arrays.get(name)
            return
        self.keys[:] = self.ring_keys(counters.integer("inserts"))
        self.sampling.ints[0] = n = self.extent
        self.priorities[:n] = arrays.get("priorities")
        if self.sampler.kind == PRIORITIZED:
            tree, levels, weights = self.sampling.floats, self.sampling.levels, np.array(arrays.get("weights"))
            set_many(tree, levels, np.arange(n), weights, n, np.empty(n, np.int64), None)

    def ring_keys(self, inserts: int) -> np.ndarray:
        """The key of each slot of a circle after so many inserts."""
        turn, place = divmod(inserts, self.capacity)  # the circle was filled so often, and this is the next slot
        keys = np.arange(self.capacity, dtype=np.int64) + (turn + 1) * self.capacity
        keys[place:] -= self.capacity
        if turn == 0:
            keys[place:] = -1 - keys[place:]
        return keys


def _all_free(capacity: int) -> np.ndarray:
    """The stack of empty slots when all are: its height, the draws of present items, and the slots."""
    return np.concatenate([[capacity, 0], np.arange(capacity - 1, -1, -1)]).astype(np.int64)


def _scratch(n: int) -> tuple[np.ndarray, ...]:
    """Slots, weights, tree nodes, eviction marks and random numbers for ``n`` items."""
    return np.empty(n, np.int64), np.empty(n), np.empty(n, np.int64), np.empty(n, np.bool_), np.empty(n)
