"""What the two sides of a worker say to each other: numbered messages over a socket, most of them empty.

Step data never travels here: it lies in shared memory, and the message says that it is there. The few messages with
content (what to make, where environments are, what went wrong) are a tree as JSON, followed by the bytes of its arrays.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any, NamedTuple

import numpy as np

from starling.core.trees import Tree

__all__ = ["DONE", "ERROR", "RESET", "RESTORE", "START", "STATE", "STEP", "Channel", "Packet", "pack", "unpack"]

# What a message is about; a number of 0 or above is that of a row: to act in it, and that it has.
START, STEP, RESET, STATE, RESTORE, DONE, ERROR = range(-7, 0)

HEADER = struct.Struct("<iI")  # a message's code, and the length of its content
LENGTH = struct.Struct("<I")


class Packet(NamedTuple):
    """One message."""

    code: int
    content: bytes = b""


class Channel:
    """One side of a socket; raises EOFError where the other side is gone."""

    def __init__(self, end: socket.socket) -> None:
        self._end, self._unread = end, b""

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, *messages: Packet) -> None:
        sent = b"".join(HEADER.pack(code, len(content)) + content for code, content in messages)
        try:
            self._end.sendall(sent)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise EOFError from error

    def poll(self) -> Packet | None:
        """The next message, if it is there."""
        message = self._next()
        if message is None:
            try:
                self._fill(socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            message = self._next()
        return message

    def receive(self, spin: float = 0.0) -> Packet:
        """The next message; looks for ``spin`` seconds before it sleeps, which takes longer to wake from."""
        until = time.perf_counter() + spin if spin else 0.0
        while spin and time.perf_counter() < until:
            message = self.poll()
            if message is not None:
                return message
        while (message := self._next()) is None:
            self._fill(0)
        return message

    def _fill(self, flags: int) -> None:
        try:
            content = self._end.recv(1 << 16, flags)
        except ConnectionResetError as error:
            raise EOFError from error
        if not content:
            raise EOFError
        self._unread += content

    def _next(self) -> Packet | None:
        if len(self._unread) < HEADER.size:
            return None
        code, length = HEADER.unpack_from(self._unread)
        end = HEADER.size + length
        if len(self._unread) < end:
            return None
        content, self._unread = self._unread[HEADER.size : end], self._unread[end:]
        return Packet(code, content)

    def close(self) -> None:
        self._end.close()


def pack(tree: Tree) -> bytes:
    """A tree of arrays, numbers, strings and None as bytes."""
    arrays: list[bytes] = []
    text = json.dumps(_plain(tree, arrays)).encode()
    return b"".join([LENGTH.pack(len(text)), text, *arrays])


def unpack(content: bytes) -> Tree:
    """The tree of ``pack``; its arrays may be written to."""
    (length,) = LENGTH.unpack_from(content)
    start = LENGTH.size + length
    return _tree(json.loads(content[LENGTH.size : start]), _Reader(content, start))


class _Reader:
    def __init__(self, content: bytes, start: int) -> None:
        self._content, self._at = content, start

    def array(self, dtype: str, shape: list[int]) -> np.ndarray:
        size = int(np.prod(shape, dtype=np.int64))
        array = np.frombuffer(self._content, dtype, size, self._at).reshape(shape).copy()
        self._at += array.nbytes
        return array


def _plain(value: Any, arrays: list[bytes]) -> Any:
    if isinstance(value, np.ndarray):
        arrays.append(value.tobytes())
        return {"array": [value.dtype.str, list(value.shape)]}
    if isinstance(value, dict):
        return {"dict": {key: _plain(child, arrays) for key, child in value.items()}}
    if isinstance(value, tuple):
        return {"tuple": [_plain(child, arrays) for child in value]}
    if isinstance(value, list):
        return [_plain(child, arrays) for child in value]
    return value.item() if isinstance(value, np.generic) else value


def _tree(plain: Any, reader: _Reader) -> Any:
    if isinstance(plain, list):
        return [_tree(child, reader) for child in plain]
    if not isinstance(plain, dict):
        return plain
    ((kind, content),) = plain.items()
    if kind == "array":
        return reader.array(*content)
    if kind == "tuple":
        return tuple(_tree(child, reader) for child in content)
    return {key: _tree(child, reader) for key, child in content.items()}
