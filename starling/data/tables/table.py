"""A table: items of one signature, drawn by one rule and removed by another, at a limited rate.

    table = Table(signature, 100_000, sampler=prioritized(0.6), limiter=MinSize(1_000), seed=0)
    table.insert({"obs": ..., "action": ..., ...})            # arrays with a leading batch dimension
    sample = table.sample(256)                                # .data .keys .probabilities .weights
    table.update_priorities(sample.keys, abs(td_errors))

Three parts make a table: admission (lock, counts, rate limiter), its index (keys, priorities, whose turn it is) and
its contents (columns, one array per leaf of the signature). Every method may be called from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from starling.core.errors import ConfigError, DataError
from starling.core.memory import refuse_if_too_large
from starling.core.random import stream
from starling.core.spaces import Dict
from starling.data.frames.base import AnyFramePool
from starling.data.tables import draw_kernels as kernels
from starling.data.tables.admission import Admission
from starling.data.tables.contents import Contents
from starling.data.tables.index import Index
from starling.data.tables.limiters import Limiter, MinSize, Queue
from starling.data.tables.sample import Results, Sample, check_beta, make_sample, weigh
from starling.data.tables.selectors import LARGEST_WEIGHT, PRIORITIZED, Selector, as_selector
from starling.data.tables.snapshots import Frozen
from starling.data.tables.store import Store
from starling.data.tables.table_state import (
    check_frozen_table,
    clear_table,
    freeze_table,
    frozen_layout_of,
    prepare_table,
    restore_frozen_table,
    restore_table,
    state_of,
)
from starling.data.untrusted import Untrusted

__all__ = ["Table", "queue", "stack"]


class Table:
    """Items with keys and priorities.

    ``max_times_sampled`` removes an item after so many draws (0: never). ``beta`` is the exponent of the importance
    weights of draws that bring none. ``shared`` names the leaves whose frames lie in a pool.
    ``directory`` keeps the columns in files there instead of in memory. ``store`` keeps the items once for several
    tables. ``check_values`` also tests bounds and finiteness at each insertion.
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
        beta: float = 1.0,
        shared: Mapping[str, AnyFramePool] | None = None,
        seed: int = 0,
        name: str = "table",
        directory: Path | None = None,
        store: Store | None = None,
        check_values: bool = False,
    ) -> None:
        if capacity < 1:
            raise ConfigError(f"capacity={capacity} for the table {name!r}; a table holds at least one item.")
        if max_times_sampled < 0:
            raise ConfigError(f"max_times_sampled={max_times_sampled}; 0 means no limit, a limit is positive.")
        if not signature.flatten():
            raise ConfigError(f"the signature of the table {name!r} has no leaves; there is nothing to store.")
        self.signature, self.capacity, self.name = signature, int(capacity), name
        self.sampler, self.remover = as_selector(sampler), as_selector(remover)
        self.priority_limit = LARGEST_WEIGHT ** (1 / max(self.sampler.alpha, self.remover.alpha, 1.0))
        self._beta = check_beta(beta)
        self._value_space = signature.ranked(batch=True) if check_values else None
        self.contents = contents = Contents(signature, self.capacity, shared, directory, store)
        self.columns, self.store = contents.columns, store
        self.shared = dict(shared or {}) if store is None else store.shared
        refuse_if_too_large(
            f"the table {name!r} of {capacity:,} items",
            self.bytes_needed(),
            "Lower the capacity, store frames once with shared=…, or spill to disk with directory=….",
        )
        contents.allocate()
        self.index = Index(
            contents.keys, contents.priorities, self.sampler, self.remover, max_times_sampled, not contents.counted
        )
        self.admission = Admission(name, self.capacity, limiter or MinSize(1), self.index.draws_left)
        self.rng = stream(seed, "table", name)
        self.largest_priority = 1.0  # of all seen so far; new items without one get it
        self.ignored_updates = 0
        self._results = Results(self.columns)
        for pool in contents.pools().values():
            pool.join(self)

    def bytes_needed(self) -> dict[str, int]:
        """Bytes of memory by purpose: each column, and the index. What lies in a pool or a store is its own."""
        return {**self.contents.bytes_needed(), "(index)": Index.nbytes(self.capacity, self.sampler, self.remover)}

    def __len__(self) -> int:
        return self.index.size

    @property
    def lock(self) -> threading.Lock:
        return self.admission.lock

    @property
    def inserts(self) -> int:
        """Items inserted so far."""
        return self.admission.counts.inserts

    @property
    def samples(self) -> int:
        """Items drawn so far."""
        return self.admission.counts.samples

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
        if priorities is not None and self.contents.counted:  # before room is made in a pool for what is refused
            self._check_priorities(priorities, n)
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
        if self.store is None:
            return self._insert_stored(leaves, n, priorities, timeout, force)
        rows = self.store.intern(leaves, n)
        try:
            return self._insert_stored([rows], n, priorities, timeout, force)
        finally:
            self.store.pool.release(rows)

    def _insert_stored(
        self, stored: list[np.ndarray], n: int, priorities: Any, timeout: float | None, force: bool
    ) -> np.ndarray | range:
        given, largest = (None, 0.0) if priorities is None else self._check_priorities(priorities, n)
        admission = self.admission
        with admission.lock:
            if not force:
                admission.enter_insert(n, timeout)
            new: np.ndarray | float = self.largest_priority
            if given is not None and n:
                new = given
                self.largest_priority = max(self.largest_priority, largest)
            keys: np.ndarray | range
            if self.index.ring:
                number = admission.counts.inserts
                self._insert_run(stored, number, n, new)
                keys = range(number + self.capacity, number + self.capacity + n)
            else:
                slots, evicted = self.index.claim(n, new, self.rng)
                self.contents.put(slots, evicted, stored)
                keys = self.index.keys[slots]
            admission.counts.inserts += n
            admission.counts.size = self.index.size
            admission.inserted()
        return keys

    def _insert_run(self, stored: list[np.ndarray], number: int, n: int, new: np.ndarray | float) -> None:
        """Write items into the circle of slots; those that cross its end in two parts."""
        first = self.capacity - number % self.capacity
        if n > first:
            one, two = (new, new) if isinstance(new, float) else np.split(new, [first])
            self._insert_run([leaf[:first] for leaf in stored], number, first, one)
            self._insert_run([leaf[first:] for leaf in stored], number + first, n - first, two)
            return
        self.contents.put_run(self.index.claim_run(number, n, new), n, stored)

    def sample(
        self, batch_size: int, *, out: Sample | None = None, beta: float | None = None, timeout: float | None = None
    ) -> Sample:
        """Draw items; waits while the limiter says so, or until there is one.

        ``beta`` is the exponent of the importance weights, for schedules over the progress of a run: from 0.4 to 1 in
        Schaul et al. Without ``out`` the result lies in buffers that the table uses again two calls later; copy what
        must live longer, or bring ``out=table.buffers(batch_size)``.
        """
        if batch_size < 1:
            raise DataError(f"batch_size={batch_size}; at least one item is drawn.")
        if out is not None and (out.batch_size != batch_size or out.owner is not self.columns):
            raise DataError(
                f"out has room for {out.batch_size} items of {out.owner.paths}, a batch of {batch_size} items of "
                f"{self.columns.paths} was asked for; make it with this table's buffers({batch_size})."
            )
        exponent = self._beta if beta is None else check_beta(beta)
        admission = self.admission
        with admission.lock:
            admission.enter_sample(batch_size, timeout)
            result = self._results.next(batch_size) if out is None else out
            self._draw(result, batch_size, exponent)
            admission.drawn()
        return result

    def _draw(self, out: Sample, n: int, beta: float) -> None:
        removed = self.index.draw(out, n, self.rng)
        self.contents.gather(out, n)
        if self.sampler.kind == PRIORITIZED:
            weigh(out, beta)
        self._count_draw(out, n, removed)

    def _count_draw(self, out: Sample, n: int, removed: int) -> None:
        if removed and self.contents.counted:
            gone = np.unique(out.slots)
            self.contents.let_go(gone[self.index.keys[gone] < 0])
        self.admission.counts.samples += n
        self.admission.counts.size = self.index.size

    def draw_again(self, n: int) -> None:
        """Draw without a limit and without a result: for draws that were made before, from the same state."""
        with self.admission.lock:
            left, counts = self.index.draws_left(), self.admission.counts
            if self.index.size and (left is None or left >= n):
                out = self.buffers(n)
                self._count_draw(out, n, self.index.draw(out, n, self.rng))
                counts.largest_sample = max(counts.largest_sample, n)
                self.admission.drawn()

    def buffers(self, batch_size: int) -> Sample:
        """A private result to draw into: ``table.sample(n, out=table.buffers(n))``."""
        return make_sample(self.columns, batch_size)

    def update_priorities(self, keys: Any, priorities: Any) -> int:
        """Set the priorities of items by key; keys that are gone are ignored and counted. Returns how many were set."""
        keys = np.ascontiguousarray(keys)
        if keys.ndim != 1 or keys.dtype != np.int64:
            raise DataError(f"keys {keys.dtype}{list(keys.shape)} arrived, int64[N] as in Sample.keys was expected.")
        checked, largest = self._check_priorities(priorities, keys.size)
        if not keys.size:
            return 0
        with self.admission.lock:
            found = self.index.update(keys, checked)
            self.ignored_updates += keys.size - found
            self.largest_priority = max(self.largest_priority, largest)
        return found

    def remove(self, keys: Any) -> int:
        """Remove items by key; keys that are gone are ignored. Returns how many were removed."""
        with self.admission.lock:
            self.index.leave_ring(self.admission.counts.inserts)
            slots = {self.index.slot_of(key) for key in np.atleast_1d(np.asarray(keys, np.int64)).tolist()} - {-1}
            for slot in sorted(slots):
                self.index.remove(slot)
            self.contents.let_go(np.array(sorted(slots), np.int64))
            self.admission.counts.size = self.index.size
            self.admission.drawn()
            return len(slots)

    def references_to(self, pool: AnyFramePool) -> np.ndarray:
        """How often the items refer to each frame of a pool; the lock is held by the caller."""
        return self.contents.references_to(pool)

    def evict(self) -> bool:
        """Remove the item whose turn it is, for the sake of a full pool; False where there is none."""
        with self.admission.lock:
            if not self.index.size:
                return False
            self.index.leave_ring(self.admission.counts.inserts)
            self.contents.let_go(np.array([self.index.evict(self.rng)]))
            self.admission.counts.size = self.index.size
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
        with self.admission.lock:
            return not self.admission.closed and self.admission.holds_insert(n) is None

    def can_sample(self, n: int = 1) -> bool:
        """Whether a draw of ``n`` items would go through at once."""
        with self.admission.lock:
            return not self.admission.closed and self.admission.holds_sample(n) is None

    def why_waiting(self) -> list[str]:
        """For each kind of caller that now waits, how many there are and for what."""
        with self.admission.lock:
            return self.admission.why_waiting()

    def close(self) -> None:
        """Release every waiting caller with TableClosedError, and refuse the following ones."""
        self.admission.close()

    def stats(self) -> dict[str, int]:
        """TableCounts since the start, for the records of a run."""
        return {
            "size": self.index.size,
            "capacity": self.capacity,
            "inserts": self.inserts,
            "samples": self.samples,
            "evicted": self.index.evicted,
            "ignored_updates": self.ignored_updates,
            "blocked_inserts": self.admission.blocked_inserts,
            "blocked_samples": self.admission.blocked_samples,
        }

    def state(self) -> dict[str, Any]:
        """Everything that determines the table's further behaviour, as a tree of arrays and numbers (copies)."""
        return state_of(self)

    def restore(self, state: Any) -> None:
        """Continue from ``state()`` of a table with the same signature, capacity and selectors; CheckpointError where
        it is of another, or damaged."""
        restore_table(self, state)

    def prepare(self) -> Frozen:
        """Room for a frozen table; no lock is needed."""
        return prepare_table(self)

    def freeze(self, frozen: Frozen) -> None:
        """Keep the table as it is now, to be read while others go on; the caller holds the lock, as for ``thaw``."""
        freeze_table(self, frozen)

    def thaw(self) -> None:
        """Let go of the frozen table."""
        self.contents.snapshot = None
        self.index.thaw()

    def frozen_layout(self, numbers: Untrusted) -> tuple[int, dict[str, int]]:
        """How many rows ``freeze`` keeps, and numbers in each array; CheckpointError where that cannot be."""
        return frozen_layout_of(self, numbers)

    def check_frozen(self, numbers: Untrusted, arrays: Untrusted) -> None:
        """CheckpointError unless ``restore_frozen`` may follow these; nothing changes."""
        check_frozen_table(self, numbers, arrays)

    def restore_frozen(self, numbers: Untrusted, arrays: Untrusted) -> None:
        """Continue from what ``freeze`` gave and ``check_frozen`` let pass, the contents being there; the lock is held
        by the caller."""
        restore_frozen_table(self, numbers, arrays)

    def check_contents(self) -> None:
        """CheckpointError where restored items refer to what is not there; the lock is held by the caller."""
        self.contents.check()

    def clear(self) -> None:
        """Forget all items and counts, but not those of pools; the lock is held by the caller."""
        clear_table(self)


def queue(signature: Dict, capacity: int, **options: Any) -> Table:
    """First in, first out, each item drawn once; both ends wait."""
    return Table(signature, capacity, sampler="fifo", max_times_sampled=1, limiter=Queue(), **options)


def stack(signature: Dict, capacity: int, **options: Any) -> Table:
    """Last in, first out, each item drawn once; the oldest items make room."""
    return Table(signature, capacity, sampler="lifo", remover="fifo", max_times_sampled=1, **options)
