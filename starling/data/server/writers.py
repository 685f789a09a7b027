"""Writers of tables that live in another process.

    writer = Writer("run/tables.sock", "replay", signature, actor=3)
    writer.insert(items)                       # or: NStepAdder(writer, num_envs=8, n=3)
    writer.flush()

A writer whose server crashes reconnects for ``patience`` seconds; then it raises ServerLostError. It sends again what
the server has not accepted, each item once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from starling.core.errors import ConfigError, DataError
from starling.core.spaces import Dict
from starling.data.frames.base import AnyFramePool
from starling.data.server.clients import Client
from starling.data.server.protocol import CONSUMER_WAITS, HEAD, PRIORITY, TAIL, describe, writer_fields
from starling.data.server.wire import ServerLostError
from starling.data.tables.kernels import fence
from starling.data.tables.layout import Columns

__all__ = ["Writer"]


class Writer:
    """Inserts items into a server's table, each exactly once; or into several tables with one signature.

    Items are numbered; ``slots`` of them may be under way before ``insert`` waits. A writer that comes back under the
    same ``actor`` goes on with the number behind the last that the server accepted. For one thread.
    """

    shared: Mapping[str, AnyFramePool] = {}

    def __init__(
        self,
        address: str | Path,
        table: str | Sequence[str],
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
        tables = [table] if isinstance(table, str) else list(table)
        if not tables:
            raise ConfigError("no table was named; a writer writes to one at least.")
        request = {"role": "writer", "tables": tables, "actor": actor, "slots": slots, "layout": layout}
        self._client = Client(address, request, writer_fields(layout, slots), patience)
        self._head = self._client.accepted
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
            fence()
            self._counters[HEAD] = head + step  # only now does the server see the items
            fence()
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
        accepted = self._client.accepted
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
