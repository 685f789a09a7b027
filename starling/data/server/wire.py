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
from pathlib import Path
from typing import Any

from starling.core.errors import DataError

__all__ = ["ServerLostError", "connect", "drain", "receive", "ring_bell", "send", "wait_readable"]

LIMIT = 1_000_000
LENGTH = struct.Struct("<I")


class ServerLostError(DataError):
    """The table server is gone and did not come back in time."""


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
    content = json.dumps(message).encode()
    socket.send_fds(connection, [LENGTH.pack(len(content)) + content], descriptors or [])


def receive(connection: socket.socket, descriptors: int = 0) -> tuple[dict[str, Any], list[int]]:
    """One message and the descriptors that came with it; OSError where the other side is gone."""
    content, found, _, _ = socket.recv_fds(connection, 65536, max(1, descriptors))
    while len(content) >= LENGTH.size or content:
        if len(content) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(content)
            if length > LIMIT:
                raise DataError(f"a message of {length} bytes arrived; at most {LIMIT} are allowed.")
            if len(content) >= LENGTH.size + length:
                message = json.loads(content[LENGTH.size : LENGTH.size + length])
                if not isinstance(message, dict):
                    raise DataError(f"{message!r:.60} arrived, an object was expected.")
                return message, list(found)
        more = connection.recv(65536)
        if not more:
            break
        content += more
    for descriptor in found:
        os.close(descriptor)
    raise ConnectionResetError("the other side is gone")


def ring_bell(connection: socket.socket) -> None:
    """Wake the other side of a non-blocking socket; where it is full, a bell has been rung already."""
    with contextlib.suppress(OSError):
        connection.send(b"!")


def drain(connection: socket.socket) -> bool:
    """Take all waiting bytes from a non-blocking socket; False where the other side is gone."""
    while True:
        try:
            content = connection.recv(4096)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not content:
            return False


def wait_readable(connection: socket.socket, seconds: float) -> bool:
    """Wait for a bell or the end of the connection."""
    return bool(select.select([connection], [], [], max(0.0, seconds))[0])
