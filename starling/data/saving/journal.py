"""A journal of what happened to a server's tables: what came after the last checkpoint survives the server's crash.

A record is a header (lengths and a checksum), a name, and the bytes of some arrays. Inserts carry the writer's name and
the number of its first item; draws and priority updates carry the table's name. Done again in this order from the last
checkpoint on, they lead to the same table. A record cut short by a crash was never acknowledged; reading stops there.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from starling.core.errors import CheckpointError
from starling.data.saving.files import sync_directory

__all__ = ["DRAW", "INSERT", "UPDATE", "Journal", "Record", "read_journals"]

INSERT, DRAW, UPDATE = b"SJI2", b"SJD2", b"SJU2"
FIELDS = struct.Struct("<4sIIQI")  # kind, length of the name, items, first sequence number, bytes
CHECKSUM = struct.Struct("<I")
NAME = re.compile(r"journal-(\d{8})\.bin")
MOST_BUFFERS = 512  # that the system takes at once


@dataclass(frozen=True)
class Record:
    """Something that happened: ``items`` items, the first with the number ``sequence``."""

    kind: bytes
    name: str
    sequence: int
    items: int
    content: bytes


def _files(directory: Path) -> list[tuple[int, Path]]:
    found = ((NAME.fullmatch(path.name), path) for path in directory.iterdir())
    return sorted((int(match[1]), path) for match, path in found if match)


class Journal:
    """Appends to the newest file of a directory; ``rotate`` starts another.

    Records wait in memory until ``flush`` hands them to the system: then they survive a crash of the process.
    After ``sync`` they survive that of the machine.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.number = max((number for number, _ in _files(directory)), default=0)
        self._file = -1
        self._waiting: list[memoryview] = []
        self.waiting_bytes = 0
        self._unsynced: list[int] = []  # earlier files of which the disk may lack something
        self._new_name = False  # which the disk may lack as well
        self._open_next()

    def _open_next(self) -> None:
        self.number += 1
        path = self.directory / f"journal-{self.number:08d}.bin"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self._new_name = True

    def rotate(self, keep_open: bool = False) -> int:
        """Start a new file and return its number; ``keep_open`` leaves the old one to the next ``sync``."""
        self.flush()
        if keep_open:
            self._unsynced.append(self._file)
        else:
            os.close(self._file)
        self._open_next()
        return self.number

    def append(self, kind: bytes, name: str, sequence: int, items: int, arrays: list[np.ndarray]) -> None:
        """Record something. The arrays are contiguous and stay as they are until ``flush``."""
        label = name.encode()
        buffers = [memoryview(array.data).cast("B") for array in arrays if array.size]
        length = sum(map(len, buffers))
        head = FIELDS.pack(kind, len(label), items, sequence, length) + label
        checksum = zlib.crc32(head)
        for buffer in buffers:
            checksum = zlib.crc32(buffer, checksum)
        self._waiting += [memoryview(CHECKSUM.pack(checksum) + head), *buffers]
        self.waiting_bytes += CHECKSUM.size + len(head) + length

    def flush(self) -> None:
        """Hand all records to the system."""
        buffers, left = self._waiting, self.waiting_bytes
        self._waiting, self.waiting_bytes = [], 0
        while left:
            written = os.writev(self._file, buffers[:MOST_BUFFERS])
            left -= written
            done = 0
            while written:  # a partial write goes on where it stopped
                step = min(written, len(buffers[done]))
                written -= step
                buffers[done] = buffers[done][step:]
                done += not len(buffers[done])
            del buffers[:done]

    def sync(self) -> None:
        """Return when all records are on disk."""
        self.flush()
        while self._unsynced:
            os.fsync(self._unsynced[0])
            os.close(self._unsynced.pop(0))
        os.fsync(self._file)
        if self._new_name:
            sync_directory(self.directory)
            self._new_name = False

    def drop_before(self, number: int) -> None:
        """Delete the files that a checkpoint has made superfluous."""
        for found, path in _files(self.directory):
            if found < number:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        self.flush()
        for file in (*self._unsynced, self._file):
            os.close(file)
        self._unsynced.clear()


def read_journals(directory: Path, first: int) -> Iterator[Record]:
    """Each whole record, from file number ``first`` on."""
    if not directory.is_dir():
        return
    for number, path in _files(directory):
        if number < first:
            continue
        with open(path, "rb") as file:
            left = os.fstat(file.fileno()).st_size
            while (record := _read(file, left)) is not None:
                yield record
                left -= CHECKSUM.size + FIELDS.size + len(record.name.encode()) + len(record.content)


def _read(file: BinaryIO, left: int) -> Record | None:
    """The next record of a file that has so many bytes left, None where it is not whole."""
    start = file.read(CHECKSUM.size + FIELDS.size)
    if len(start) < CHECKSUM.size + FIELDS.size:
        return None
    (checksum,), fields = CHECKSUM.unpack_from(start), start[CHECKSUM.size :]
    kind, name_length, items, sequence, length = FIELDS.unpack(fields)
    if kind not in (INSERT, DRAW, UPDATE) or len(start) + name_length + length > left:
        return None
    name, content = file.read(name_length), file.read(length)
    if len(content) < length or zlib.crc32(content, zlib.crc32(name, zlib.crc32(fields))) != checksum:
        return None
    try:
        return Record(kind, name.decode(), sequence, items, content)
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{file.name} names a table or writer {name!r:.100}, which is no text.") from error
