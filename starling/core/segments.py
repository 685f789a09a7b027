"""Shared memory laid out from a signature: counters, a line of text, and one array per leaf.

A segment is an unnamed file in memory: whoever is to see it is handed its descriptor over a socket. There is no name to
leak, the system frees it when the last process that has it is gone, however it went, and no resource tracker is
involved. The bytes are reserved before use, so that a full memory is an error here and not a SIGBUS later.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from starling.core.errors import ConfigError

__all__ = ["Field", "Segment", "segment_size"]

Field = tuple[str, tuple[int, ...], str]  # name, shape, dtype
LINE = 64
COUNTERS = 32  # where nobody asks for another number
TEXT = 512


def _open_unnamed() -> int:
    """A descriptor of a file in memory that has no name."""
    if os.name != "posix":
        raise ConfigError(f"shared memory needs a POSIX system, this is {os.name}; stay within one process.")
    create = getattr(os, "memfd_create", None)
    if create is not None:
        return int(create("starling"))  # closed on exec by default
    directory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    descriptor, path = tempfile.mkstemp(dir=directory)
    os.unlink(path)
    return descriptor


def _places(fields: list[Field], counters: int) -> tuple[list[int], int]:
    """Where each field begins, and the size of all."""
    starts, offset = [], counters * LINE + TEXT
    for _, shape, dtype in fields:
        starts.append(offset)
        offset += LINE * -(-math.prod(shape) * np.dtype(dtype).itemsize // LINE)
    return starts, offset


def segment_size(fields: list[Field], counters: int = COUNTERS) -> int:
    """Bytes that a segment of these fields takes."""
    return _places(fields, counters)[1]


class Segment:
    """Named arrays in one piece of shared memory.

    ``counters`` are sixty-four-bit integers, each written by one side alone and each on its own cache line, so that
    a value is seen either before or after a change.
    """

    def __init__(self, fields: list[Field], descriptor: int | None = None, counters: int = COUNTERS) -> None:
        starts, self.size = _places(fields, counters)
        self.descriptor = _reserve(self.size) if descriptor is None else descriptor
        if os.fstat(self.descriptor).st_size < self.size:
            raise ConfigError(
                f"the segment has {os.fstat(self.descriptor).st_size} bytes, the layout needs {self.size}; do both "
                "sides have the same signature and sizes?"
            )
        self._map = mmap.mmap(self.descriptor, self.size)
        self.counters = np.ndarray(counters, np.int64, self._map, 0, strides=(LINE,))
        self._text = np.ndarray(TEXT, np.uint8, self._map, counters * LINE)
        self.arrays: dict[str, np.ndarray] = {
            name: np.ndarray(shape, np.dtype(dtype), self._map, start)
            for (name, shape, dtype), start in zip(fields, starts)
        }

    @property
    def text(self) -> str:
        """A short message from one side to the other."""
        return bytes(self._text).split(b"\0", 1)[0].decode(errors="replace")

    @text.setter
    def text(self, text: str) -> None:
        content = text.encode()[: TEXT - 1]
        self._text[len(content) :] = 0
        self._text[: len(content)] = np.frombuffer(content, np.uint8)

    def close(self) -> None:
        """Give the descriptor back; the memory goes with the last array that looks into it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _reserve(size: int) -> int:
    descriptor = _open_unnamed()
    try:
        os.ftruncate(descriptor, size)
        allocate: Any = getattr(os, "posix_fallocate", None)
        if allocate is not None:
            allocate(descriptor, 0, size)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.ENOSPC, errno.ENOMEM):
            raise ConfigError(
                f"shared memory for {size / 1e6:,.1f} MB cannot be reserved ({error.strerror}); use fewer slots or a "
                "smaller batch, or enlarge the shared memory of the system."
            ) from error
        raise
    return descriptor
