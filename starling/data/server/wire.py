"""Messages between a table server and its clients: JSON with a length in front, descriptors, and a doorbell.

Messages open a connection and report errors. The experience itself goes through shared memory; after the handshake a
socket carries single bytes that wake the other side, and its end, which tells that the other side is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import time
from pathlib import Path
from typing import Any

from starling.core.errors import DataError
from starling.data.untrusted import json_object

__all__ = ["Inbox", "ServerLostError", "connect", "drain", "receive", "ring_bell", "send", "wait_readable"]

LIMIT = 1_000_000  # bytes of a message
AT_ONCE = 65_536  # bytes taken from a socket
LENGTH = struct.Struct("<I")
BELL = b"!"


class ServerLostError(DataError):
    """The table server is gone and did not come back in time."""


class Inbox:
    """A message as it comes in, of at most ``limit`` bytes."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit, self._content = limit, bytearray()

    def take(self, content: bytes) -> dict[str, Any] | None:
        """The message, where these are its last bytes; DataError where it can be none."""
        self._content += content
        if len(self._content) < LENGTH.size:
            return None
        (length,) = LENGTH.unpack_from(self._content)
        missing = LENGTH.size + length - len(self._content)
        if length > self._limit or missing < 0:
            raise DataError(
                f"a message of {length} bytes arrived, and {max(0, -missing)} behind it; it has {self._limit} bytes at "
                "most, and the next waits for the answer."
            )
        return None if missing else json_object(bytes(self._content[LENGTH.size :]), "a message", DataError)


def connect(address: Path, timeout: float) -> socket.socket:
    """A connection to the server's socket; OSError where there is none."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout)
    try:
        connection.connect(str(address))
    except OSError:
        connection.close()
        raise
    return connection


def send(connection: socket.socket, message: dict[str, Any], descriptors: list[int] | None = None) -> None:
    """Send a message; OSError where the other side does not take it, at once if the socket does not block."""
    text = json.dumps(message).encode()
    content = LENGTH.pack(len(text)) + text
    sent = socket.send_fds(connection, [content], descriptors or [])
    if sent < len(content):
        connection.sendall(content[sent:])


def receive(connection: socket.socket, descriptors: int = 0) -> tuple[dict[str, Any], list[int]]:
    """One message and the descriptors that came with it, at most so many, within the socket's timeout; OSError where
    the other side is gone or too slow."""
    inbox, found = Inbox(), list[int]()
    end = time.monotonic() + (connection.gettimeout() or 0.0)
    try:
        while (left := end - time.monotonic()) > 0:
            connection.settimeout(left)
            if descriptors:
                content, more, _, _ = socket.recv_fds(connection, AT_ONCE, descriptors)
                found += more
            else:  # the system closes those that come all the same
                content = connection.recv(AT_ONCE)
            if not content:
                raise ConnectionResetError("the other side is gone")
            message = inbox.take(content)
            if message is not None:
                return message, found
        raise TimeoutError("the other side took too long for a message")
    except BaseException:
        for descriptor in found:
            os.close(descriptor)
        raise


def ring_bell(connection: socket.socket) -> None:
    """Wake the other side of a non-blocking socket; where it is full, a bell has been rung already."""
    with contextlib.suppress(OSError):
        connection.send(BELL)


def drain(connection: socket.socket) -> bool:
    """Take waiting bells from a non-blocking socket, but not for ever; False where the other side is gone, or sends
    anything else."""
    try:
        content = connection.recv(AT_ONCE)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return bool(content) and not content.strip(BELL)


def wait_readable(connection: socket.socket, seconds: float) -> bool:
    """Wait for a bell or the end of the connection."""
    return bool(select.select([connection], [], [], max(0.0, seconds))[0])
