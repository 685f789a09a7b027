"""Admission to a table: one lock, the counts, and the waiting that the rate limiter asks for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from starling.data.tables.limiters import Limiter, RateLimitTimeout, TableClosedError, TableCounts

__all__ = ["Admission"]


class Admission:
    """Admits callers when the limiter allows. All methods are called with ``lock`` held, except ``close``.

    ``draws_left`` tells how many draws the items still allow, None without a limit.
    """

    def __init__(self, name: str, capacity: int, limiter: Limiter, draws_left: Callable[[], int | None]) -> None:
        self.name, self.capacity, self.limiter = name, capacity, limiter
        self._draws_left = draws_left
        self.counts = TableCounts()
        self.lock = threading.Lock()
        self._room, self._filled = threading.Condition(self.lock), threading.Condition(self.lock)
        self._waiting_inserts = self._waiting_samples = 0
        self.blocked_inserts = self.blocked_samples = 0
        self.closed = False

    def holds_insert(self, n: int) -> str | None:
        return self.limiter.holds_insert(n, self.counts, self.capacity)

    def holds_sample(self, n: int) -> str | None:
        if self.counts.size == 0:
            return "sample waits: the table is empty"
        left = self._draws_left()
        if left is not None and left < n:
            return f"sample waits: {left} draws left, {n} wanted"
        return self.limiter.holds_sample(n, self.counts)

    def enter_insert(self, n: int, timeout: float | None) -> None:
        """Return when ``n`` items may be inserted."""
        if self.closed or self.holds_insert(n) is not None:
            self._waiting_inserts += 1
            try:
                self.blocked_inserts += self._wait(self.holds_insert, n, self._room, timeout)
            finally:
                self._waiting_inserts -= 1
        if n > self.counts.largest_insert:
            self.counts.largest_insert = n

    def enter_sample(self, n: int, timeout: float | None) -> None:
        """Return when ``n`` items may be drawn."""
        if self.closed or self.holds_sample(n) is not None:
            self._waiting_samples += 1
            try:
                self.blocked_samples += self._wait(self.holds_sample, n, self._filled, timeout)
            finally:
                self._waiting_samples -= 1
        if n > self.counts.largest_sample:
            self.counts.largest_sample = n

    def _wait(
        self, holds: Callable[[int], str | None], n: int, condition: threading.Condition, timeout: float | None
    ) -> bool:
        """Wait until nothing holds the caller; returns whether it had to wait at all."""
        end = None if timeout is None else time.monotonic() + timeout
        waited = False
        while True:
            if self.closed:
                raise TableClosedError(f"the table {self.name!r} is closed; nothing more goes in or out.")
            reason = holds(n)
            if reason is None:
                return waited
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise RateLimitTimeout(f"the table {self.name!r} held a caller back for {timeout:g} s: {reason}.")
            waited = True
            condition.wait(left)

    def inserted(self) -> None:
        """Wake those who wait for items."""
        if self._waiting_samples:
            self._filled.notify_all()

    def drawn(self) -> None:
        """Wake those who wait for room."""
        if self._waiting_inserts:
            self._room.notify_all()

    def why_waiting(self) -> list[str]:
        reasons = []
        if self._waiting_inserts and (why := self.holds_insert(1)):
            reasons.append(f"{self._waiting_inserts} × {why}")
        if self._waiting_samples and (why := self.holds_sample(1)):
            reasons.append(f"{self._waiting_samples} × {why}")
        return reasons

    def close(self) -> None:
        with self.lock:
            self.closed = True
            self._room.notify_all()
            self._filled.notify_all()
