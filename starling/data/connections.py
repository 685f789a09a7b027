"""The server's end of each connection: it moves items from rings into tables and batches from tables into rings."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import numpy as np

from starling.core.errors import ConfigError, DataError
from starling.data.kernels import fence
from starling.data.protocol import (
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
from starling.data.sample import make_sample
from starling.data.segments import Segment
from starling.data.table import Table
from starling.data.wire import ring_bell

__all__ = ["Commit", "SamplerEnd", "WriterEnd", "close_end"]

LARGEST_TAKE = 1024  # items taken from one writer before the next has its turn
Commit = Callable[[Table, str, int, int, list[np.ndarray], np.ndarray], None]


class WriterEnd:
    """Takes a writer's items, in order, as the table's limiter allows.

    ``commit(table, writer, sequence, n, leaves, priorities)`` makes the items safe and inserts them; only then is the
    tail moved, which tells the writer.
    """

    def __init__(self, connection: socket.socket, segment: Segment, table: Table, writer: str, commit: Commit) -> None:
        self.connection, self.segment, self.table, self.writer = connection, segment, table, writer
        self._commit = commit
        self._leaves = [segment.arrays[path] for path in table.columns.paths]
        self._priorities = segment.arrays[PRIORITY]
        self.slots = self._priorities.size

    def pending(self) -> bool:
        counters = self.segment.counters
        return bool(counters[HEAD] > counters[TAIL])

    def sleep(self, flag: bool) -> None:
        self.segment.counters[CONSUMER_WAITS] = flag

    def serve(self) -> bool:
        """Take what is there; returns whether anything was."""
        counters = self.segment.counters
        head, tail = int(counters[HEAD]), int(counters[TAIL])
        if head == tail:
            return False
        fence()
        start = tail % self.slots
        wanted = min(head - tail, self.slots - start, self.table.capacity, LARGEST_TAKE)
        n = self._admissible(wanted)
        if n == 0:
            return False
        end = start + n
        leaves = [leaf[start:end] for leaf in self._leaves]
        self._commit(self.table, self.writer, tail, n, leaves, self._priorities[start:end])
        fence()
        counters[TAIL] = tail + n
        fence()
        if counters[PRODUCER_WAITS]:
            counters[PRODUCER_WAITS] = 0
            ring_bell(self.connection)
        return True

    def _admissible(self, n: int) -> int:
        """The largest number of items, halving from ``n``, that the limiter lets in now."""
        reason: str | None = None
        gate = self.table.gate
        with gate.lock:
            while n:
                try:
                    reason = "the table is closed" if gate.closed else gate.holds_insert(n)
                except ConfigError as error:  # so many at once could wait for ever; fewer may not
                    reason = str(error)
                if reason is None:
                    return n
                n //= 2
        if reason is not None and self.segment.text != reason:
            self.segment.text = reason
        return 0


class SamplerEnd:
    """Keeps a sampler's free batches filled, as the table's limiter allows, and applies its priority updates."""

    def __init__(self, connection: socket.socket, segment: Segment, table: Table, batch: int, depth: int) -> None:
        self.connection, self.segment, self.table, self.batch, self.depth = connection, segment, table, batch, depth
        arrays = segment.arrays
        names = [*table.columns.paths, KEYS, PROBABILITIES, WEIGHTS]
        self._samples = [
            make_sample(table.columns, batch, {name: arrays[name][i] for name in names}) for i in range(depth)
        ]
        self._updates = (arrays[UPDATE_KEYS], arrays[UPDATE_PRIORITIES])

    def pending(self) -> bool:
        counters = self.segment.counters
        return bool(counters[UPDATE_HEAD] > counters[UPDATE_TAIL]) or self._can_fill()

    def sleep(self, flag: bool) -> None:
        self.segment.counters[CONSUMER_WAITS] = flag

    def _can_fill(self) -> bool:
        counters = self.segment.counters
        if counters[HEAD] - counters[TAIL] >= self.depth:
            return False
        gate = self.table.gate
        with gate.lock:
            try:
                reason = "the table is closed" if gate.closed else gate.holds_sample(self.batch)
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
        self.table.sample(self.batch, out=self._samples[head % self.depth], timeout=0)
        fence()
        counters[HEAD] = head + 1
        fence()
        if counters[PRODUCER_WAITS]:
            counters[PRODUCER_WAITS] = 0
            ring_bell(self.connection)
        return True

    def _apply_updates(self) -> bool:
        counters, (keys, priorities) = self.segment.counters, self._updates
        head, tail = int(counters[UPDATE_HEAD]), int(counters[UPDATE_TAIL])
        if head == tail:
            return False
        fence()
        start = tail % keys.size
        end = min(start + head - tail, keys.size)
        try:
            self.table.update_priorities(keys[start:end].copy(), priorities[start:end].copy())
        except DataError as error:  # the client checks before it sends; another program may not
            self.segment.text = str(error)
        counters[UPDATE_TAIL] = tail + end - start
        return True


def close_end(end: Any) -> None:
    """Let go of a connection whose other side is gone."""
    end.connection.close()
    end.segment.close()
