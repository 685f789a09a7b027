"""A table: items of one signature, drawn by one rule and removed by another, at a limited rate.

    table = Table(signature, 100_000, sampler=prioritized(0.6), limiter=MinSize(1_000), seed=0)
    table.insert({"obs": ..., "action": ..., ...})            # arrays with a leading batch dimension
    sample = table.sample(256)                                # .data .keys .probabilities .weights
    table.update_priorities(sample.keys, abs(td_errors))

Items are stored as columns, one array per leaf of the signature. Every method may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from starling.core.errors import ConfigError, DataError
from starling.core.random import stream
from starling.core.spaces import Dict
from starling.data import table_kernels as kernels
from starling.data.gate import Gate
from starling.data.index import Index
from starling.data.kernels import gather_rows
from starling.data.layout import Columns
from starling.data.limiters import Limiter, MinSize, Queue
from starling.data.memory import refuse_if_too_large
from starling.data.pools import AnyFramePool
from starling.data.sample import Beta, Sample, make_sample
from starling.data.selectors import LARGEST_WEIGHT, PRIORITIZED, Selector, as_selector
from starling.data.snapshots import Snapshot
from starling.data.table_state import numbers_of, restore_numbers, restore_table, state_of

__all__ = ["Table", "queue", "stack"]

REUSED = 2  # buffers handed out in turn where the caller brings none


class Table:
    """Items with keys and priorities.

    ``max_times_sampled`` removes an item after so many draws (0: never). ``beta`` is the exponent of the importance
    weights, a number or a schedule over drawn items. ``shared`` names the leaves whose frames lie in a pool.
    ``directory`` keeps the columns in files there instead of in memory. ``check_values`` also tests bounds and
    finiteness at each insertion.
    """

    def __init__(
        self,
        signature: Dict,
        capacity: int,
        *,
        sampler: Selector | str = "uniform",
        remover: Selector | str = "fifo",
        limiter: Limiter | None = None,
        max_times_sampled: int = 0,
        beta: float | Beta = 1.0,
        shared: Mapping[str, AnyFramePool] | None = None,
        seed: int = 0,
        name: str = "table",
        directory: Path | None = None,
        check_values: bool = False,
    ) -> None:
        if capacity < 1:
            raise ConfigError(f"capacity={capacity} for the table {name!r}; a table holds at least one item.")
        if max_times_sampled < 0:
            raise ConfigError(f"max_times_sampled={max_times_sampled}; 0 means no limit, a limit is positive.")
        if not signature.flatten():
            raise ConfigError(f"the signature of the table {name!r} has no leaves; there is nothing to store.")
        self.signature, self.capacity, self.name = signature, int(capacity), name
        self.shared = dict(shared or {})
        self.sampler, self.remover = as_selector(sampler), as_selector(remover)
        self.priority_limit = LARGEST_WEIGHT ** (1 / max(self.sampler.alpha, self.remover.alpha, 1.0))
        self._beta = beta if isinstance(beta, Beta) else Beta(float(beta), float(beta), 1)
        self._value_space = signature.ranked(batch=True) if check_values else None
        self.columns = Columns(signature, self.capacity, self.shared, directory)
        refuse_if_too_large(
            f"the table {name!r} of {capacity:,} items",
            self.bytes_needed(),
            "Lower the capacity, store frames once with shared=…, or spill to disk with directory=….",
        )
        self.columns.allocate()
        self.index = Index(
            self.columns.keys, self.columns.priorities, self.sampler, self.remover, max_times_sampled, not self.shared
        )
        self.gate = Gate(name, self.capacity, limiter or MinSize(1), self.index.draws_left)
        self.rng = stream(seed, "table", name)
        self.largest_priority = 1.0  # of all seen so far; new items without one get it
        self.ignored_updates = 0
        self._snapshot: Snapshot | None = None
        self._buffers: dict[int, list[Sample]] = {}
        self._turn = 0
        for pool in {id(pool): pool for pool in self.shared.values()}.values():
            pool.join(self)

    def bytes_needed(self) -> dict[str, int]:
        """Bytes of memory by purpose: each column, and the index. The frames of a pool are the pool's."""
        columns = {} if self.columns.directory else self.columns.bytes_by_leaf()
        return {**columns, "(index)": Index.nbytes(self.capacity, self.sampler, self.remover)}

    def __len__(self) -> int:
        return self.index.size

    @property
    def inserts(self) -> int:
        """Items inserted so far."""
        return self.gate.counts.inserts

    @property
    def samples(self) -> int:
        """Items drawn so far."""
        return self.gate.counts.samples

    def insert(self, items: Any, priorities: Any = None, *, timeout: float | None = None) -> np.ndarray:
        """Store a batch of items and return their keys; waits while the limiter says so.

        Without ``priorities`` an item gets the largest seen so far, so that it is soon drawn. Raises DataError where
        the items do not fit the signature, and leaves the table as it was.
        """
        leaves = self.columns.flatten(items)
        n = self.columns.check(leaves)
        if self._value_space is not None and (reason := self._value_space.mismatch(items)):
            raise DataError(f"items for the table {self.name!r}: {reason}.")
        if n > self.capacity:
            raise DataError(f"{n} items at once for the table {self.name!r} of capacity {self.capacity}; split them.")
        stored = self.columns.intern(leaves) if self.shared else leaves
        try:
            keys = self.insert_leaves(stored, n, priorities, timeout)
        finally:
            if self.shared:
                self.columns.release(stored)
        return np.arange(keys.start, keys.stop) if isinstance(keys, range) else keys

    def insert_leaves(
        self,
        leaves: list[np.ndarray],
        n: int,
        priorities: Any = None,
        timeout: float | None = None,
        *,
        force: bool = False,
    ) -> np.ndarray | range:
        """``insert`` for callers that keep to the signature.

        ``leaves`` are those of ``n`` items in the signature's order, shared ones as frame numbers. ``force`` passes by
        the limiter: for items that were accepted before.
        """
        given, largest = (None, 0.0) if priorities is None else self._check_priorities(priorities, n)
        gate = self.gate
        with gate.lock:
            if not force:
                gate.enter_insert(n, timeout)
            new: np.ndarray | float = self.largest_priority
            if given is not None and n:
                new = given
                self.largest_priority = max(self.largest_priority, largest)
            keys: np.ndarray | range
            if self.index.ring:
                number = gate.counts.inserts
                self._insert_run(leaves, number, n, new)
                keys = range(number + self.capacity, number + self.capacity + n)
            else:
                keys = self._insert_anywhere(leaves, n, new)
            gate.counts.inserts += n
            gate.counts.size = self.index.size
            gate.inserted()
        return keys

    def _insert_run(self, leaves: list[np.ndarray], number: int, n: int, new: np.ndarray | float) -> None:
        """Write items into the circle of slots; those that cross its end in two parts."""
        first = self.capacity - number % self.capacity
        if n > first:
            one, two = (new, new) if isinstance(new, float) else np.split(new, [first])
            self._insert_run([leaf[:first] for leaf in leaves], number, first, one)
            self._insert_run([leaf[first:] for leaf in leaves], number + first, n - first, two)
            return
        if self._snapshot is not None:
            start = number % self.capacity
            self._snapshot.before_write(np.arange(start, start + n))
        start = self.index.claim_run(number, n, new)
        if n == 1:
            for column, leaf in zip(self.columns.arrays, leaves):
                column[start] = leaf[0]
        else:
            for column, leaf in zip(self.columns.arrays, leaves):
                column[start : start + n] = leaf

    def _insert_anywhere(self, leaves: list[np.ndarray], n: int, new: np.ndarray | float) -> np.ndarray:
        slots, evicted = self.index.claim(n, new, self.rng)
        if self.shared:
            self.columns.retain(leaves)
            self.columns.release_rows(slots[evicted])
        if self._snapshot is not None:
            self._snapshot.before_write(slots)
        for column, leaf in zip(self.columns.arrays, leaves):
            column[slots] = leaf
        return self.index.keys[slots]

    def sample(
        self, batch_size: int, *, out: Sample | None = None, beta: float | None = None, timeout: float | None = None
    ) -> Sample:
        """Draw items; waits while the limiter says so, or until there is one.

        Without ``out`` the result lies in buffers that the table uses again two calls later; copy what must live
        longer, or bring ``out=table.buffers(batch_size)``.
        """
        if batch_size < 1:
            raise DataError(f"batch_size={batch_size}; at least one item is drawn.")
        if out is not None and (out.batch_size != batch_size or out.owner is not self.columns):
            raise DataError(
                f"out has room for {out.batch_size} items of {out.owner.paths}, a batch of {batch_size} items of "
                f"{self.columns.paths} was asked for; make it with this table's buffers({batch_size})."
            )
        gate = self.gate
        with gate.lock:
            gate.enter_sample(batch_size, timeout)
            result = self._next_buffer(batch_size) if out is None else out
            self._draw(result, batch_size, beta)
            gate.drawn()
        return result

    def _draw(self, out: Sample, n: int, beta: float | None) -> None:
        counts = self.gate.counts
        removed = self.index.draw(out, n, self.rng)
        gather_rows(out.plan, out.slots, n)
        for i, pool in self.columns.pools.items():
            pool.gather(self.columns.arrays[i], out.slots, out.leaves[i])
        if self.sampler.kind == PRIORITIZED:
            exponent = self._beta(counts.samples) if beta is None else beta
            kernels.rarity(out.probabilities, n, out.weights)
            np.power(out.weights, np.float32(exponent), out=out.weights)
        if removed and self.shared:
            gone = np.unique(out.slots)
            self.columns.release_rows(gone[self.index.keys[gone] < 0])
        counts.samples += n
        counts.size = self.index.size

    def buffers(self, batch_size: int) -> Sample:
        """A private result to draw into: ``table.sample(n, out=table.buffers(n))``."""
        return make_sample(self.columns, batch_size)

    def _next_buffer(self, batch_size: int) -> Sample:
        ring = self._buffers.get(batch_size)
        if ring is None:
            ring = self._buffers[batch_size] = [self.buffers(batch_size) for _ in range(REUSED)]
        self._turn += 1
        return ring[self._turn % REUSED]

    def update_priorities(self, keys: Any, priorities: Any) -> int:
        """Set the priorities of items by key; keys that are gone are ignored and counted. Returns how many were set."""
        keys = np.ascontiguousarray(keys)
        if keys.ndim != 1 or keys.dtype != np.int64:
            raise DataError(f"keys {keys.dtype}{list(keys.shape)} arrived, int64[N] as in Sample.keys was expected.")
        checked, largest = self._check_priorities(priorities, keys.size)
        if not keys.size:
            return 0
        with self.gate.lock:
            if self._snapshot is not None:
                self._snapshot.before_write(np.unique(keys % self.capacity))
            found = self.index.update(keys, checked)
            self.ignored_updates += keys.size - found
            self.largest_priority = max(self.largest_priority, largest)
        return found

    def remove(self, keys: Any) -> int:
        """Remove items by key; keys that are gone are ignored. Returns how many were removed."""
        with self.gate.lock:
            self.index.leave_ring(self.gate.counts.inserts)
            slots = {self.index.slot_of(key) for key in np.atleast_1d(np.asarray(keys, np.int64)).tolist()} - {-1}
            if self._snapshot is not None:
                self._snapshot.before_write(np.array(sorted(slots), np.int64))
            for slot in sorted(slots):
                self.index.remove(slot)
            if slots and self.shared:
                self.columns.release_rows(np.array(sorted(slots)))
            self.gate.counts.size = self.index.size
            self.gate.drawn()
            return len(slots)

    def evict(self) -> bool:
        """Remove the item whose turn it is, for the sake of a full pool; False where there is none."""
        with self.gate.lock:
            if not self.index.size:
                return False
            self.index.leave_ring(self.gate.counts.inserts)
            self.columns.release_rows(np.array([self.index.evict(self.rng)]))
            self.gate.counts.size = self.index.size
            return True

    def _check_priorities(self, priorities: Any, n: int) -> tuple[np.ndarray, float]:
        """The priorities of ``n`` items as an array, and the largest."""
        array = np.ascontiguousarray(priorities, np.float64)
        if array.shape != (n,):
            raise DataError(f"priorities of shape {list(array.shape)} arrived for {n} items, [{n}] was expected.")
        bad, largest = kernels.check_priorities(array, self.priority_limit)
        if bad >= 0:
            raise DataError(
                f"priority {array[bad]} arrived (number {bad} of {n}); priorities lie between 0 and "
                f"{self.priority_limit:.3g}."
            )
        return array, largest

    def can_insert(self, n: int = 1) -> bool:
        """Whether an insert of ``n`` items would go through at once."""
        with self.gate.lock:
            return not self.gate.closed and self.gate.holds_insert(n) is None

    def can_sample(self, n: int = 1) -> bool:
        """Whether a draw of ``n`` items would go through at once."""
        with self.gate.lock:
            return not self.gate.closed and self.gate.holds_sample(n) is None

    def why_waiting(self) -> list[str]:
        """For each kind of caller that now waits, how many there are and for what."""
        with self.gate.lock:
            return self.gate.why_waiting()

    def close(self) -> None:
        """Release every waiting caller with TableClosedError, and refuse the following ones."""
        self.gate.close()

    def stats(self) -> dict[str, int]:
        """Counts since the start, for the records of a run."""
        return {
            "size": self.index.size,
            "capacity": self.capacity,
            "inserts": self.inserts,
            "samples": self.samples,
            "evicted": self.index.evicted,
            "ignored_updates": self.ignored_updates,
            "blocked_inserts": self.gate.blocked_inserts,
            "blocked_samples": self.gate.blocked_samples,
        }

    def freeze(self) -> tuple[dict[str, Any], Snapshot]:
        """The state without the contents, and a view of the contents as they are now; the lock is held by the caller.

        The view's extras belong to the state's index. Other threads go on inserting; ``thaw`` when all has been read.
        """
        index, extras = self.index.compact()
        self._snapshot = Snapshot(self.columns.arrays, self.index.extent, extras)
        return {**numbers_of(self), "index": index}, self._snapshot

    def thaw(self) -> None:
        self._snapshot = None

    def state(self) -> dict[str, Any]:
        """Everything that determines the table's further behaviour, as a tree of arrays and numbers (copies)."""
        return state_of(self)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state()`` of a table with the same signature, capacity and selectors."""
        restore_table(self, state)

    def distinct_pools(self) -> dict[str, AnyFramePool]:
        """Each pool once, under the first of its leaves."""
        distinct: dict[int, str] = {}
        for path, pool in sorted(self.shared.items()):
            distinct.setdefault(id(pool), path)
        return {path: self.shared[path] for path in distinct.values()}

    def restore_frozen(self, state: Mapping[str, Any]) -> None:
        """Continue from the first result of ``freeze``, the contents being there; the lock is held by the caller."""
        counters = {k: int(v) for k, v in state["counters"].items()}
        self.index.restore_compact(state["index"], counters, counters["inserts"])
        restore_numbers(self, state, counters)


def queue(signature: Dict, capacity: int, **options: Any) -> Table:
    """First in, first out, each item drawn once; both ends wait."""
    return Table(signature, capacity, sampler="fifo", max_times_sampled=1, limiter=Queue(), **options)


def stack(signature: Dict, capacity: int, **options: Any) -> Table:
    """Last in, first out, each item drawn once; the oldest items make room."""
    return Table(signature, capacity, sampler="lifo", remover="fifo", max_times_sampled=1, **options)
