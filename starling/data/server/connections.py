"""The server's end of each connection: it moves items from rings into tables and batches from tables into rings."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from math import prod

import numpy as np

from starling.core.errors import ConfigError, DataError
from starling.core.segments import Segment
from starling.data.saving.durable_log import DurableLog
from starling.data.server.protocol import (
    CONSUMER_WAITS,
    HEAD,
    KEYS,
    PRIORITY,
    PROBABILITIES,
    PRODUCER_WAITS,
    TAIL,
    UPDATE_HEAD,
    UPDATE_KEYS,
    UPDATE_PRIORITIES,
    UPDATE_TAIL,
    WEIGHTS,
)
from starling.data.server.wire import ring_bell
from starling.data.tables.kernels import fence
from starling.data.tables.limiters import RateLimitTimeout
from starling.data.tables.sample import make_sample
from starling.data.tables.table import Table

__all__ = ["End", "SamplerEnd", "WriterEnd"]

LARGEST_TAKE = 1024  # items taken from one writer before the next has its turn


class WriterEnd:
    """Takes a writer's items, in order, as the limiters of its tables allow.

    ``serve`` has the log insert them; ``acknowledge``, when the log is flushed, moves the tail, which tells the
    writer that they are safe.

    The client may write anywhere in the segment, at any moment: what the server has to rely on, it keeps for itself,
    and what it reads it checks each time.
    """

    def __init__(
        self,
        connection: socket.socket,
        segment: Segment,
        tables: Sequence[Table],
        writer: str,
        log: DurableLog,
        accepted: int,
    ) -> None:
        self.connection, self.segment, self.tables, self.writer = connection, segment, tables, writer
        self._log = log
        self._leaves = [segment.arrays[path] for path in tables[0].columns.paths]
        self._priorities = segment.arrays[PRIORITY]
        self.slots = self._priorities.size
        self._largest = _largest_take(tables)
        self._taken = self._told = accepted  # items, and those of which the writer knows that they are safe
        self._last: int | None = None  # how many there will be of a writer that is gone

    def _published(self) -> int:
        """How many items the writer has published; DataError where its counter cannot be."""
        head = int(self.segment.counters[HEAD]) if self._last is None else self._last
        if not 0 <= head - self._taken <= self.slots:
            raise DataError(
                f"the writer {self.writer!r} says that it published {head} items; {self._taken} were taken, and its "
                f"ring holds {self.slots} more."
            )
        return head

    def pending(self) -> bool:
        return self._published() > self._taken

    def leave(self) -> bool:
        """The writer is gone; returns whether items of it are left. No more are taken than there are now."""
        self._last = self._published()
        return self.pending()

    def sleep(self, flag: bool) -> None:
        self.segment.counters[CONSUMER_WAITS] = flag

    def serve(self) -> bool:
        """Take what is there; returns whether anything was."""
        head, tail = self._published(), self._taken
        if head == tail:
            return False
        fence()
        start = tail % self.slots
        n = self._admissible(min(head - tail, self.slots - start, self._largest))
        if n == 0:
            return False
        end = start + n
        leaves = [leaf[start:end] for leaf in self._leaves]
        self._log.insert(self.tables, self.writer, tail, n, leaves, self._priorities[start:end])
        self._taken = tail + n
        return True

    def acknowledge(self) -> None:
        counters = self.segment.counters
        if self._told == self._taken:
            return
        fence()
        counters[TAIL] = self._told = self._taken
        fence()
        if counters[PRODUCER_WAITS]:
            counters[PRODUCER_WAITS] = 0
            ring_bell(self.connection)

    def _admissible(self, n: int) -> int:
        """The largest number of items, halving from ``n``, that all limiters let in now."""
        reason: str | None = None
        for table in self.tables:
            with table.admission.lock:
                while n and (reason := _holds_insert(table, n)) is not None:
                    n //= 2
        if n == 0 and reason is not None and self.segment.text != reason:
            self.segment.text = reason
        return n


def _largest_take(tables: Sequence[Table]) -> int:
    """Items of which the tables and the pools of their frames have room at once, whatever is in them."""
    most = min(LARGEST_TAKE, *(table.capacity for table in tables))
    for table in tables:
        for pool in table.contents.pools().values():
            frames = sum(prod(table.columns.shapes[i]) for i, each in table.columns.pools.items() if each is pool)
            most = min(most, pool.most_frames // max(1, frames))
    return max(1, most)


def _holds_insert(table: Table, n: int) -> str | None:
    try:
        return "the table is closed" if table.admission.closed else table.admission.holds_insert(n)
    except ConfigError as error:  # so many at once could wait for ever; fewer may not
        return str(error)


class SamplerEnd:
    """Keeps a sampler's free batches filled, as the table's limiter allows, and applies its priority updates.

    As with a writer's segment, its counters are checked each time, and what is computed with lies elsewhere.
    """

    def __init__(
        self, connection: socket.socket, segment: Segment, table: Table, batch: int, depth: int, log: DurableLog
    ) -> None:
        self.connection, self.segment, self.table, self.batch, self.depth = connection, segment, table, batch, depth
        self._log = log
        arrays = segment.arrays
        self._numbers: dict[str, np.ndarray] = {
            KEYS: np.empty(batch, np.int64),
            PROBABILITIES: np.empty(batch),
            WEIGHTS: np.ones(batch, np.float32),
        }
        self._samples = [
            make_sample(table.columns, batch, {**self._numbers, **{p: arrays[p][i] for p in table.columns.paths}})
            for i in range(depth)
        ]
        self._updates = (arrays[UPDATE_KEYS], arrays[UPDATE_PRIORITIES])
        self._filled = self._read = self._updated = 0  # batches, those that the sampler took, and priorities

    def pending(self) -> bool:
        return self._update_head() > self._updated or self._can_fill()

    def _update_head(self) -> int:
        """How many updates the sampler has sent; DataError where its counter cannot be."""
        head, room = int(self.segment.counters[UPDATE_HEAD]), self._updates[0].size
        if not 0 <= head - self._updated <= room:
            raise DataError(
                f"a sampler says that it sent {head} updates; {self._updated} were applied, and its ring holds {room} "
                "more."
            )
        return head

    def _unread(self) -> int:
        """How many batches the sampler has not taken; DataError where its counter cannot be."""
        tail = int(self.segment.counters[TAIL])
        if not self._read <= tail <= self._filled:
            raise DataError(
                f"a sampler says that it took {tail} batches; it had taken {self._read} before, of {self._filled} that "
                "were filled."
            )
        self._read = tail
        return self._filled - tail

    def sleep(self, flag: bool) -> None:
        self.segment.counters[CONSUMER_WAITS] = flag

    def _can_fill(self) -> bool:
        if self._unread() >= self.depth:
            return False
        admission = self.table.admission
        with admission.lock:
            try:
                reason = "the table is closed" if admission.closed else admission.holds_sample(self.batch)
            except ConfigError as error:
                reason = str(error)
        if reason is not None and self.segment.text != reason:
            self.segment.text = reason
        return reason is None

    def serve(self) -> bool:
        """Apply updates and fill one batch; returns whether anything was done."""
        updated = self._apply_updates()
        if not self._can_fill():
            return updated
        counters, place = self.segment.counters, self._filled % self.depth
        try:
            self._log.draw(self.table, self._samples[place])
        except RateLimitTimeout:  # somebody in this process was faster
            return updated
        for name, numbers in self._numbers.items():
            self.segment.arrays[name][place] = numbers
        self._filled += 1
        fence()
        counters[HEAD] = self._filled
        fence()
        if counters[PRODUCER_WAITS]:
            counters[PRODUCER_WAITS] = 0
            ring_bell(self.connection)
        return True

    def _apply_updates(self) -> bool:
        head, tail, (keys, priorities) = self._update_head(), self._updated, self._updates
        if head == tail:
            return False
        fence()
        start = tail % keys.size
        end = min(start + head - tail, keys.size)
        try:
            self._log.update(self.table, keys[start:end].copy(), priorities[start:end].copy())
        except DataError as error:  # the client checks before it sends; another program may not
            self.segment.text = str(error)
        self._updated = tail + end - start
        return True

    def acknowledge(self) -> None:
        """Tell the sampler that its updates are noted; otherwise it sends them again to the server that comes back."""
        if self.segment.counters[UPDATE_TAIL] != self._updated:
            self.segment.counters[UPDATE_TAIL] = self._updated


End = WriterEnd | SamplerEnd
