"""The server's end of each connection: it moves items from rings into tables and batches from tables into rings."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

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

__all__ = ["SamplerEnd", "WriterEnd", "close_end"]

LARGEST_TAKE = 1024  # items taken from one writer before the next has its turn


class WriterEnd:
    """Takes a writer's items, in order, as the limiters of its tables allow.

    ``serve`` has the log insert them; ``acknowledge``, when the log is flushed, moves the tail, which tells the
    writer that they are safe.
    """

    def __init__(
        self, connection: socket.socket, segment: Segment, tables: Sequence[Table], writer: str, log: DurableLog
    ) -> None:
        self.connection, self.segment, self.tables, self.writer = connection, segment, tables, writer
        self._log = log
        self._leaves = [segment.arrays[path] for path in tables[0].columns.paths]
        self._priorities = segment.arrays[PRIORITY]
        self.slots = self._priorities.size
        self._largest = min(LARGEST_TAKE, *(table.capacity for table in tables))
        self._taken = int(segment.counters[TAIL])

    def pending(self) -> bool:
        counters = self.segment.counters
        return bool(counters[HEAD] > counters[TAIL])

    def sleep(self, flag: bool) -> None:
        self.segment.counters[CONSUMER_WAITS] = flag

    def serve(self) -> bool:
        """Take what is there; returns whether anything was."""
        head, tail = int(self.segment.counters[HEAD]), self._taken
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
        if counters[TAIL] == self._taken:
            return
        fence()
        counters[TAIL] = self._taken
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


def _holds_insert(table: Table, n: int) -> str | None:
    try:
        return "the table is closed" if table.admission.closed else table.admission.holds_insert(n)
    except ConfigError as error:  # so many at once could wait for ever; fewer may not
        return str(error)


class SamplerEnd:
    """Keeps a sampler's free batches filled, as the table's limiter allows, and applies its priority updates."""

    def __init__(
        self, connection: socket.socket, segment: Segment, table: Table, batch: int, depth: int, log: DurableLog
    ) -> None:
        self.connection, self.segment, self.table, self.batch, self.depth = connection, segment, table, batch, depth
        self._log = log
        arrays = segment.arrays
        arrays[WEIGHTS][...] = 1.0
        names = [*table.columns.paths, KEYS, PROBABILITIES, WEIGHTS]
        self._samples = [
            make_sample(table.columns, batch, {name: arrays[name][i] for name in names}) for i in range(depth)
        ]
        self._updates = (arrays[UPDATE_KEYS], arrays[UPDATE_PRIORITIES])
        self._updated = 0

    def pending(self) -> bool:
        return bool(self.segment.counters[UPDATE_HEAD] > self._updated) or self._can_fill()

    def sleep(self, flag: bool) -> None:
        self.segment.counters[CONSUMER_WAITS] = flag

    def _can_fill(self) -> bool:
        counters = self.segment.counters
        if counters[HEAD] - counters[TAIL] >= self.depth:
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
        counters = self.segment.counters
        head = int(counters[HEAD])
        try:
            self._log.draw(self.table, self._samples[head % self.depth])
        except RateLimitTimeout:  # somebody in this process was faster
            return updated
        fence()
        counters[HEAD] = head + 1
        fence()
        if counters[PRODUCER_WAITS]:
            counters[PRODUCER_WAITS] = 0
            ring_bell(self.connection)
        return True

    def _apply_updates(self) -> bool:
        head, tail, (keys, priorities) = int(self.segment.counters[UPDATE_HEAD]), self._updated, self._updates
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


def close_end(end: Any) -> None:
    """Let go of a connection whose other side is gone."""
    end.connection.close()
    end.segment.close()
