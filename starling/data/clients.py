"""Writers and samplers of tables that live in another process.

    writer = Writer("run/tables.sock", "replay", signature, actor=3)
    writer.insert(items)                       # or: NStepAdder(writer, num_envs=8, n=3)
    sampler = Sampler("run/tables.sock", "replay", signature, batch_size=256)
    sample = sampler.sample()
    sampler.update_priorities(sample.keys, abs(td_errors))

A client whose server dies reconnects for ``patience`` seconds; then it raises ServerLostError. A writer sends again
what the server has not accepted, each item once.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from starling.core.errors import ConfigError, DataError
from starling.core.spaces import Dict
from starling.data.frames import FramePool
from starling.data.layout import Columns
from starling.data.limiters import RateLimitTimeout
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
    describe,
    sampler_fields,
    writer_fields,
)
from starling.data.sample import Sample, make_sample
from starling.data.segments import Field, Segment
from starling.data.wire import ServerLostError, connect, drain, receive, ring_bell, send, wait_readable

__all__ = ["Sampler", "Writer", "ask_server"]

NAP = 0.05  # seconds a waiting client sleeps before it looks by itself
RETRY = 0.02  # seconds between attempts to reconnect


def ask_server(address: str | Path, request: str, timeout: float = 60.0) -> dict[str, Any]:
    """Have a server do something once: ``stats`` or ``checkpoint``."""
    with connect(Path(address), timeout) as connection:
        send(connection, {"role": request})
        answer, _ = receive(connection)
    if "error" in answer:
        raise DataError(f"the server at {address} answered: {answer['error']}")
    return answer


class _Client:
    """A connection with its segment, made anew when the server is lost."""

    def __init__(self, address: str | Path, greeting: dict[str, Any], fields: list[Field], patience: float) -> None:
        self.address, self.patience = Path(address), patience
        self._greeting, self._fields = greeting, fields
        self._connection: socket.socket | None = None
        self._closed = False
        self.reconnects = -1
        self.segment, self.answer = self._connect()

    def _connect(self) -> tuple[Segment, dict[str, Any]]:
        end = time.monotonic() + self.patience
        while True:
            try:
                segment, answer = self._try_connect()
            except OSError as error:
                reason = str(error)
            else:
                if segment is not None:
                    self.reconnects += 1
                    return segment, answer
                reason = answer["busy"]
            if time.monotonic() >= end:
                raise ServerLostError(
                    f"no table server at {self.address} within {self.patience:g} s ({reason}); is it running?"
                )
            time.sleep(RETRY)

    def _try_connect(self) -> tuple[Segment | None, dict[str, Any]]:
        connection = connect(self.address, max(0.1, self.patience))
        try:
            send(connection, self._greeting)
            answer, descriptors = receive(connection, 1)
        except OSError:
            connection.close()
            raise
        if "error" in answer:
            connection.close()
            raise DataError(f"the server at {self.address} refused: {answer['error']}")
        if "busy" in answer:
            connection.close()
            return None, answer
        connection.setblocking(False)
        self._connection = connection
        return Segment(self._fields, descriptors[0]), answer

    def lost(self) -> bool:
        """Whether the server is gone."""
        return self._connection is None or not drain(self._connection)

    def wake(self) -> None:
        if self._connection is not None:
            ring_bell(self._connection)

    def reconnect(self) -> None:
        """Leave the lost connection and make another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self.segment.close()
        self.segment, self.answer = self._connect()

    def wait(self, ready: Callable[[], bool], timeout: float | None, what: str, recover: Callable[[], None]) -> None:
        """Return when ``ready``; meanwhile notice a lost server and recover from it."""
        end = None if timeout is None else time.monotonic() + timeout
        while not ready():
            if self._closed:
                raise DataError("the client is closed.")
            self.segment.counters[PRODUCER_WAITS] = 1
            if ready():
                break
            left = NAP if end is None else min(NAP, end - time.monotonic())
            if left <= 0:
                raise RateLimitTimeout(f"{what} waited for {timeout:g} s: {self.segment.text or 'the server is busy'}.")
            if self._connection is None or (wait_readable(self._connection, left) and self.lost()):
                recover()
        self.segment.counters[PRODUCER_WAITS] = 0

    def close(self) -> None:
        self._closed = True
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self.segment.close()


class Writer:
    """Inserts items into a server's table, each exactly once.

    Items are numbered; ``slots`` of them may be under way before ``insert`` waits. A writer that comes back under the
    same ``actor`` goes on with the number behind the last that the server accepted.
    """

    shared: Mapping[str, FramePool] = {}

    def __init__(
        self,
        address: str | Path,
        table: str,
        signature: Dict,
        *,
        actor: int = 0,
        slots: int = 1024,
        patience: float = 5.0,
    ) -> None:
        if slots < 1:
            raise ConfigError(f"slots={slots}; a ring has at least one.")
        self.signature, self.slots = signature, slots
        layout = describe(signature)
        self._columns = Columns(signature, 1)
        greeting = {"role": "writer", "table": table, "actor": actor, "slots": slots, "layout": layout}
        self._client = _Client(address, greeting, writer_fields(layout, slots), patience)
        self._head = int(self._client.answer["accepted"])
        self._first = self._head  # what came before was another writer's
        self._attach()

    def _attach(self) -> None:
        segment = self._client.segment
        self._counters = segment.counters
        self._leaves = [segment.arrays[path] for path in self._columns.paths]
        self._priorities = segment.arrays[PRIORITY]
        self._tail = int(self._counters[TAIL])

    @property
    def sent(self) -> int:
        """The number of the next item."""
        return self._head

    @property
    def acknowledged(self) -> int:
        """Items before this number are safe with the server."""
        return int(self._counters[TAIL])

    def insert(self, items: Any, priorities: Any = None, *, timeout: float | None = None) -> int:
        """Send a batch of items; returns the number behind the last. Waits while too many are under way."""
        leaves = self._columns.flatten(items)
        return self.insert_leaves(leaves, self._columns.check(leaves), priorities, timeout)

    def insert_leaves(
        self, leaves: list[np.ndarray], n: int, priorities: Any = None, timeout: float | None = None
    ) -> int:
        given = None if priorities is None else np.asarray(priorities, np.float64)
        if given is not None and not (given.shape == (n,) and ((given >= 0) & np.isfinite(given)).all()):
            raise DataError(f"priorities {given!r:.80} arrived for {n} items; one finite number, at least 0, for each.")
        done = 0
        while done < n:
            head = self._head
            if head + n - done - self._tail > self.slots:  # as far as known: look again
                self._tail = int(self._counters[TAIL])
            free = self.slots - (head - self._tail)
            if free <= 0:
                self._client.wait(self._has_room, timeout, "a writer", self._recover)
                continue
            start = head % self.slots
            step = min(n - done, free, self.slots - start)
            if n == 1:
                for ring, leaf in zip(self._leaves, leaves):
                    ring[start] = leaf[0]
            else:
                for ring, leaf in zip(self._leaves, leaves):
                    ring[start : start + step] = leaf[done : done + step]
            self._priorities[start : start + step] = np.nan if given is None else given[done : done + step]
            self._head = head + step
            self._counters[HEAD] = head + step  # only now does the server see the items
            done += step
            if self._counters[CONSUMER_WAITS]:
                self._counters[CONSUMER_WAITS] = 0
                self._client.wake()
        return self._head

    def _has_room(self) -> bool:
        return self._head - int(self._counters[TAIL]) < self.slots

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every item is safe with the server."""
        self._client.wake()
        self._client.wait(lambda: self.acknowledged >= self._head, timeout, "a writer's flush", self._recover)

    def _recover(self) -> None:
        """Reconnect, and send again what the server has not accepted."""
        old_leaves, old_priorities = self._leaves, self._priorities
        self._client.reconnect()
        self._attach()
        accepted = int(self._client.answer["accepted"])
        oldest = max(self._first, self._head - self.slots)
        if not oldest <= accepted <= self._head:
            self._client.close()
        if accepted < oldest:
            raise ServerLostError(
                f"the server came back with {accepted} items of this writer, which keeps those from {oldest} on; "
                f"{oldest - accepted} are lost. Give the server a directory, so that it keeps what it accepted."
            )
        if accepted > self._head:
            raise DataError(f"the server has {accepted} items of this actor, {self._head} were sent; who else is it?")
        for ring, old in zip((*self._leaves, self._priorities), (*old_leaves, old_priorities)):
            ring[:] = old
        self._counters[HEAD] = self._head
        self._client.wake()

    def close(self, timeout: float | None = 5.0) -> None:
        """Flush, then leave."""
        try:
            self.flush(timeout)
        finally:
            self._client.close()


class Sampler:
    """Draws batches from a server's table and sends priorities back.

    ``prefetch`` batches are drawn ahead. A sample lies in shared memory and is overwritten two calls later.
    """

    def __init__(
        self,
        address: str | Path,
        table: str,
        signature: Dict,
        batch_size: int,
        *,
        prefetch: int = 2,
        updates: int = 16_384,
        patience: float = 5.0,
    ) -> None:
        if batch_size < 1 or prefetch < 1 or updates < batch_size:
            raise ConfigError(
                f"batch_size={batch_size}, prefetch={prefetch}, updates={updates}; the first two are at least 1 and "
                "there is room for the updates of one batch."
            )
        self.signature, self.batch_size, self._depth, self._room = signature, batch_size, prefetch + 2, updates
        layout = describe(signature)
        self._columns = Columns(signature, 1)
        self._columns.allocate()
        sizes = {"batch": batch_size, "depth": self._depth, "updates": updates}
        greeting = {"role": "sampler", "table": table, "layout": layout, **sizes}
        fields = sampler_fields(layout, batch_size, self._depth, updates)
        self._client = _Client(address, greeting, fields, patience)
        self._attach()

    def _attach(self) -> None:
        segment = self._client.segment
        self._counters = segment.counters
        names = [*self._columns.paths, KEYS, PROBABILITIES, WEIGHTS]
        self._samples = [
            make_sample(self._columns, self.batch_size, {name: segment.arrays[name][i] for name in names})
            for i in range(self._depth)
        ]
        self._taken = 0
        self._update_keys, self._update_priorities = segment.arrays[UPDATE_KEYS], segment.arrays[UPDATE_PRIORITIES]

    def sample(self, timeout: float | None = None) -> Sample:
        """The next batch."""
        self._counters[TAIL] = max(0, self._taken - 1)  # the batch before the last may be overwritten
        self._wake_server()
        if int(self._counters[HEAD]) <= self._taken:
            self._client.wait(self._has_batch, timeout, "a sampler", self._recover)
        sample = self._samples[self._taken % self._depth]
        self._taken += 1
        return sample

    def _has_batch(self) -> bool:
        return int(self._counters[HEAD]) > self._taken

    def _wake_server(self) -> None:
        if self._counters[CONSUMER_WAITS]:
            self._counters[CONSUMER_WAITS] = 0
            self._client.wake()

    def update_priorities(self, keys: Any, priorities: Any, timeout: float | None = None) -> None:
        """Send new priorities; the server applies them in order and ignores keys that are gone."""
        keys, given = np.asarray(keys), np.asarray(priorities, np.float64)
        if keys.dtype != np.int64 or keys.ndim != 1 or given.shape != keys.shape:
            raise DataError(
                f"keys {keys.dtype}{list(keys.shape)} and priorities {list(given.shape)} arrived; int64[N]."
            )
        if not ((given >= 0) & np.isfinite(given)).all():
            raise DataError(f"priorities {given!r:.80} arrived; they are finite and at least 0.")
        done, n = 0, keys.size
        while done < n:
            head = int(self._counters[UPDATE_HEAD])
            free = self._room - (head - int(self._counters[UPDATE_TAIL]))
            if free <= 0:
                self._client.wait(self._has_update_room, timeout, "a priority update", self._recover)
                continue
            start = head % self._room
            step = min(n - done, free, self._room - start)
            self._update_keys[start : start + step] = keys[done : done + step]
            self._update_priorities[start : start + step] = given[done : done + step]
            self._counters[UPDATE_HEAD] = head + step
            done += step
        self._wake_server()

    def _has_update_room(self) -> bool:
        return int(self._counters[UPDATE_HEAD]) - int(self._counters[UPDATE_TAIL]) < self._room

    def _recover(self) -> None:
        """Reconnect, and send again the updates that were not applied."""
        head, tail = int(self._counters[UPDATE_HEAD]), int(self._counters[UPDATE_TAIL])
        where = np.arange(tail, head) % self._room
        keys, priorities = self._update_keys[where], self._update_priorities[where]
        self._client.reconnect()
        self._attach()
        self.update_priorities(keys, priorities)

    def close(self) -> None:
        self._client.close()
