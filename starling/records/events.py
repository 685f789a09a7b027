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
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np

from starling.records.files import AppendFile

__all__ = ["EventFile"]


class EventFile:
    """One event file of a TensorBoard directory; events from ``purge_step`` on in older files are hidden."""

    def __init__(self, directory: Path, purge_step: int | None = None) -> None:
        directory.mkdir(exist_ok=True)
        # The name ends in process and time: a run resumed within a second must not write into its first file.
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}.{time.monotonic_ns()}"
        self._file = AppendFile(directory / name)
        self._append(_text(3, "brain.Event:2"))
        if purge_step is not None:
            self._append(_whole(2, purge_step) + _message(7, _whole(1, 1)))  # a session log that says "start"

    def write(self, step: int, values: dict[str, float], histograms: dict[str, np.ndarray]) -> None:
        """Append scalars and histograms."""
        found = [_text(1, name) + _float(2, value) for name, value in values.items()]
        for name, array in histograms.items():
            numbers = np.asarray(array, np.float64).reshape(-1)
            numbers = numbers[np.isfinite(numbers)].clip(-1e38, 1e38)  # the format adds up their squares
            if numbers.size:  # a histogram of nothing cannot be drawn; the scalars tell of the nan
                found.append(_text(1, name) + _message(5, _histogram(numbers)))
        self._append(_whole(2, step) + _message(5, b"".join(_message(1, value) for value in found)))

    def close(self) -> None:
        """Close the file; harmless when done twice."""
        self._file.close()

    def _append(self, fields: bytes) -> None:
        data = _double(1, time.time()) + fields
        length = struct.pack("<Q", len(data))
        self._file.append(length + _checksum(length) + data + _checksum(data))


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
