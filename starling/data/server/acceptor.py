"""Accepts connections and reads their first messages, in a thread of its own: whoever is served does not wait for it.

A connection that has not said what it wants costs a descriptor. So there are only so many of them, the oldest makes
room for the next, and each has so many seconds for the whole of its message, however it comes.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starling.data.server.handshake import refuse
from starling.data.server.limits import ServerLimits
from starling.data.server.wire import AT_ONCE, Inbox

__all__ = ["Acceptor"]

LARGEST_REQUEST = 262_144  # bytes
BREATH = 0.1  # seconds without new connections, where the system has no descriptors left


@dataclass
class _Newcomer:
    """A connection that has not said what it wants."""

    deadline: float
    inbox: Inbox = field(default_factory=lambda: Inbox(LARGEST_REQUEST))


class Acceptor:
    """Calls ``receive(connection, message)`` with the first message of each connection, which is non-blocking then."""

    def __init__(
        self, address: Path, limits: ServerLimits, receive: Callable[[socket.socket, dict[str, Any]], None]
    ) -> None:
        self._limits, self._receive = limits, receive
        self._newcomers: dict[socket.socket, _Newcomer] = {}  # the oldest first
        self._pause_ends: float | None = None
        self._stopping = False
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(address))
        self._listener.listen(128)
        self._wake_in, self._wake_out = socket.socketpair()
        for readable in (self._listener, self._wake_in):
            readable.setblocking(False)
            self._selector.register(readable, selectors.EVENT_READ)

    def run(self) -> None:
        """Accept until ``stop``."""
        while not self._stopping:
            self._dismiss_late()
            for key, _ in self._selector.select(self._seconds_left()):
                connection: Any = key.fileobj
                if connection is self._listener:
                    self._accept()
                elif connection in self._newcomers:
                    self._read(connection)

    def stop(self) -> None:
        self._stopping = True
        with contextlib.suppress(OSError):
            self._wake_out.send(b"!")

    def close(self) -> None:
        """Give everything back; ``run`` is over, or never began."""
        for connection in (*self._newcomers, self._listener, self._wake_in, self._wake_out):
            connection.close()
        self._newcomers.clear()
        self._selector.close()

    def _seconds_left(self) -> float | None:
        """Until something has to be done though nothing happens; None: for ever."""
        ends = [newcomer.deadline for newcomer in list(self._newcomers.values())[:1]]
        if self._pause_ends is not None:
            ends.append(self._pause_ends)
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    def _dismiss_late(self) -> None:
        now = time.monotonic()
        while self._newcomers and next(iter(self._newcomers.values())).deadline <= now:
            self._dismiss_oldest()
        if self._pause_ends is not None and self._pause_ends <= now:
            self._pause_ends = None
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:  # no descriptors left: who waits stays readable, and would be tried again at once
            self._dismiss_oldest()
            self._selector.unregister(self._listener)
            self._pause_ends = time.monotonic() + BREATH
            return
        if len(self._newcomers) >= self._limits.newcomers:
            self._dismiss_oldest()
        connection.setblocking(False)
        self._newcomers[connection] = _Newcomer(time.monotonic() + self._limits.patience)
        self._selector.register(connection, selectors.EVENT_READ)

    def _dismiss_oldest(self) -> None:
        if self._newcomers:
            oldest = next(iter(self._newcomers))
            self._forget(oldest)
            oldest.close()

    def _forget(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        del self._newcomers[connection]

    def _read(self, connection: socket.socket) -> None:
        """Take what has come of a first message; whatever it brings about, the next one is served."""
        try:
            content = connection.recv(AT_ONCE)
            if not content:
                raise ConnectionResetError("the client is gone")
            message = self._newcomers[connection].inbox.take(content)
            if message is not None:
                self._forget(connection)
                self._receive(connection, message)
        except Exception as error:
            if connection in self._newcomers:
                self._forget(connection)
            refuse(connection, error)
