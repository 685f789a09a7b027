"""A journal of inserted batches: what came after the last checkpoint survives the death of the server.

A record is a header (lengths and a checksum), the writer's name and its first sequence number, and the bytes of each
leaf. It is handed to the system before the writer is told that its items are safe. A record cut short by a death was
never acknowledged; reading stops there.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

__all__ = ["Journal", "read_journals"]

HEADER = struct.Struct("<4sIIQII")  # mark, length of the name, items, first sequence number, bytes, checksum
MARK = b"SJ01"
NAME = re.compile(r"journal-(\d{8})\.bin")


def _files(directory: Path) -> list[tuple[int, Path]]:
    found = ((NAME.fullmatch(path.name), path) for path in directory.iterdir())
    return sorted((int(match[1]), path) for match, path in found if match)


class Journal:
    """Appends to the newest file of a directory; ``rotate`` starts another."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.number = max((number for number, _ in _files(directory)), default=0)
        self._file = -1
        self.rotate()

    def rotate(self) -> int:
        """Start a new file and return its number."""
        self.close()
        self.number += 1
        path = self.directory / f"journal-{self.number:08d}.bin"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        return self.number

    def append(self, writer: str, sequence: int, items: int, arrays: list[np.ndarray]) -> None:
        """Record ``items`` items of a writer, the first with this number; arrays are contiguous, one per leaf."""
        name = writer.encode()
        buffers = [memoryview(array.data).cast("B") for array in arrays if array.size]
        checksum, length = zlib.crc32(name), 0
        for buffer in buffers:
            checksum, length = zlib.crc32(buffer, checksum), length + len(buffer)
        header = HEADER.pack(MARK, len(name), items, sequence, length, checksum)
        self._write([memoryview(header), memoryview(name), *buffers])

    def _write(self, buffers: list[memoryview]) -> None:
        left = sum(map(len, buffers))
        while left:
            written = os.writev(self._file, buffers[:512])
            left -= written
            while written:  # a partial write goes on where it stopped
                step = min(written, len(buffers[0]))
                written -= step
                buffers[0] = buffers[0][step:]
                if not len(buffers[0]):
                    buffers.pop(0)

    def drop_before(self, number: int) -> None:
        """Delete the files that a checkpoint has made superfluous."""
        for found, path in _files(self.directory):
            if found < number:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def read_journals(directory: Path, first: int) -> Iterator[tuple[str, int, int, bytes]]:
    """Yield (writer, first sequence number, items, bytes) of each whole record, from file number ``first`` on."""
    if not directory.is_dir():
        return
    for number, path in _files(directory):
        if number < first:
            continue
        with open(path, "rb") as file:
            while len(header := file.read(HEADER.size)) == HEADER.size:
                mark, name_length, items, sequence, length, checksum = HEADER.unpack(header)
                if mark != MARK:
                    break
                name, content = file.read(name_length), file.read(length)
                if len(content) < length or zlib.crc32(content, zlib.crc32(name)) != checksum:
                    break
                yield name.decode(), sequence, items, content
