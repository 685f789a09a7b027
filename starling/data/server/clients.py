"""A client's connection to a table server, made anew when the server is lost."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starling.core.errors import DataError, StarlingError
from starling.core.segments import Field, Segment
from starling.data.server.protocol import PRODUCER_WAITS
from starling.data.server.sealed import open_segment
from starling.data.server.wire import ServerLostError, connect, drain, receive, ring_bell, send, wait_readable
from starling.data.tables.kernels import fence
from starling.data.tables.limiters import RateLimitTimeout
from starling.data.untrusted import Untrusted

__all__ = ["Client", "ask_server"]

NAP = 0.05  # seconds a waiting client sleeps before it looks by itself
RETRY = 0.02  # seconds between attempts to reconnect


def ask_server(address: str | Path, request: str, timeout: float = 60.0) -> dict[str, Any]:
    """Have a server do something once: ``stats`` or ``checkpoint``."""
    try:
        with connect(Path(address), timeout) as connection:
            send(connection, {"role": request})
            answer, _ = receive(connection)
    except OSError as error:
        raise ServerLostError(f"no answer from a table server at {address} ({error}); is it running?") from error
    if "busy" in answer:
        raise ServerLostError(f"the table server at {address} is busy: {answer['busy']}; ask again.")
    if "error" in answer:
        raise DataError(f"the server at {address} answered: {answer['error']}")
    return answer


class Client:
    """A connection with its segment, made anew when the server is lost."""

    def __init__(self, address: str | Path, request: dict[str, Any], fields: list[Field], patience: float) -> None:
        self.address, self.patience = Path(address), patience
        self._request, self._fields = request, fields
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
            send(connection, self._request)
            answer, descriptors = receive(connection, 1)
            if "error" in answer:
                raise DataError(f"the server at {self.address} refused: {answer['error']}")
            if "busy" in answer:
                connection.close()
                return None, answer
            if not descriptors:
                raise DataError(f"the server at {self.address} sent no shared memory; is it of another version?")
            segment = open_segment(self._fields, descriptors[0])
        except (OSError, StarlingError):
            connection.close()
            raise
        connection.setblocking(False)
        self._connection = connection
        return segment, answer

    @property
    def accepted(self) -> int:
        """How many items of a writer the server says that it has."""
        return Untrusted(self.answer, "the server's answer", "", "Is it of another version?", DataError).integer(
            "accepted"
        )

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
            fence()
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
