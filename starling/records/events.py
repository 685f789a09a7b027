"""TensorBoard events, written at once by the thread that reports them.

A file is records of length, checksum of the length, bytes, checksum of the bytes; the bytes are one protocol-buffer
message. The few messages needed are encoded here: the libraries that do it import a deep-learning framework where one
is installed, which takes seconds, and hand events to a thread, which loses them when the process is killed.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import numpy as np

from starling.core.errors import RunDirError
from starling.records.files import AppendFile, read_bytes, write_atomic
from starling.records.thinning import thinned

__all__ = ["EventFiles"]

PARTS = 8  # files that share the room; when it is full they become one
READABLE = 1 << 30  # bytes of a file
SUMMARY, SESSION = 5, 7  # fields of an event


class EventFiles:
    """A TensorBoard directory of at most ``most_bytes``; what it had of ``purge_step`` and later is hidden."""

    def __init__(self, directory: Path, purge_step: int | None, most_bytes: int) -> None:
        directory.mkdir(exist_ok=True)
        self._directory, self._most = directory, most_bytes
        self._file = self._begin()
        if purge_step is not None:
            self.purge(purge_step)

    def write(self, step: int, values: dict[str, float], histograms: dict[str, np.ndarray]) -> None:
        """Append scalars and histograms."""
        found = [_text(1, name) + _float(2, value) for name, value in values.items()]
        for name, array in histograms.items():
            numbers = np.asarray(array, np.float64).reshape(-1)
            numbers = numbers[np.isfinite(numbers)].clip(-1e38, 1e38)  # the format adds up their squares
            if numbers.size:  # a histogram of nothing cannot be drawn; the scalars tell of the nan
                found.append(_text(1, name) + _message(5, _histogram(numbers)))
        event = _record(_whole(2, step) + _message(SUMMARY, b"".join(_message(1, value) for value in found)))
        if self._file.size + len(event) > self._most // PARTS:
            self._file.close()
            self._file = self._begin()
        self._file.append(event)

    def purge(self, step: int) -> None:
        """Hide what was written from ``step`` on."""
        self._file.append(_record(_whole(2, step) + _message(SESSION, _whole(1, 1))))  # it says "start"

    def close(self) -> None:
        """Close the file; harmless when done twice."""
        self._file.close()

    def _begin(self) -> AppendFile:
        """A new file, and room for it."""
        files = sorted(self._directory.glob("events.out.tfevents.*"))
        if sum(file.stat().st_size for file in files) > self._most * (PARTS - 1) // PARTS:
            _join(files, self._most * 3 // 4)
        # The name ends in process and time: a run resumed within a second must not write into its first file.
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}.{time.monotonic_ns()}"
        file = AppendFile(self._directory / name)
        file.append(_version())
        return file


def _join(files: list[Path], most_bytes: int) -> None:
    """Make one file of several, thinned and without what is hidden; a crash on the way may leave events there twice."""
    events: list[tuple[int, bytes]] = []
    for record in (record for file in files for record in _records(read_bytes(file, READABLE))):
        step, kind = _head(record)
        if kind == SESSION:
            events = [earlier for earlier in events if earlier[0] < step]
        elif kind == SUMMARY:
            events.append((step, record))
    write_atomic(files[0], b"".join([_version(), *thinned(events, most_bytes)]), RunDirError)
    for file in files[1:]:
        file.unlink()


def _records(data: bytes) -> Iterator[bytes]:
    """The whole records of a file."""
    start = 0
    while (end := start + 16 + int.from_bytes(data[start : start + 8], "little")) <= len(data):
        yield data[start:end]
        start = end


def _head(record: bytes) -> tuple[int, int]:
    """The step of an event, and the number of the field that follows, which says what it is; 0 where it is damaged."""
    step, start = 0, 12 + 9  # behind the length and the time
    try:
        if record[start] == 2 << 3:
            step, start = _read_varint(record, start + 1)
        return step, record[start] >> 3
    except IndexError:
        return step, 0


def _version() -> bytes:
    """The event that a file begins with."""
    return _record(_text(3, "brain.Event:2"))


def _record(fields: bytes) -> bytes:
    data = _double(1, time.time()) + fields
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _histogram(numbers: np.ndarray) -> bytes:
    counts, edges = np.histogram(numbers, bins=_edges(numbers))
    moments = (numbers.min(), numbers.max(), numbers.size, numbers.sum(), np.square(numbers).sum())
    head = b"".join(_double(field, float(value)) for field, value in enumerate(moments, start=1))
    # A bucket is named by its upper limit; an empty one in front says where the first begins.
    return head + _doubles(6, edges) + _doubles(7, [0, *counts])


# Protocol buffers: a field is its number and wire type, then its value (0 varint, 1 eight bytes, 2 counted bytes,
# 5 four bytes). Zeros are left out, except where a field is one of several alternatives.


def _varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _read_varint(data: bytes, start: int) -> tuple[int, int]:
    """A varint of at most 64 bits, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        value |= (data[start] & 127) << shift
        start += 1
        if data[start - 1] < 128:
            break
    return value, start


def _whole(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value) if value else b""


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value) if value else b""


def _float(field: int, value: float) -> bytes:
    with np.errstate(over="ignore"):  # beyond float32 is infinite
        return _varint(field << 3 | 5) + np.float32(value).tobytes()


def _message(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _text(field: int, value: str) -> bytes:
    return _message(field, value.encode())


def _doubles(field: int, values: Iterable[float]) -> bytes:
    return _message(field, np.asarray(values, np.float64).tobytes())


@cache
def _crc_table() -> list[int]:
    """CRC-32C (Castagnoli) of every byte."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


def _checksum(data: bytes) -> bytes:
    """The record format's checksum: CRC-32C, turned by fifteen bits and shifted by a constant."""
    table, crc = _crc_table(), 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _edges(numbers: np.ndarray) -> np.ndarray:
    """Thirty bins over the range; one bin of some width where all numbers are equal, or nearly."""
    low, high = float(numbers.min()), float(numbers.max())
    edges = np.linspace(low, high, 31)
    if (np.diff(edges) > 0).all():
        return edges
    width = max(abs(low) * 1e-3, 1e-6)
    return np.array([low - width, high + width])
