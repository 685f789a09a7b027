"""TensorBoard events, written at once by the thread that reports them.

tensorboardX's own ``SummaryWriter`` hands events to a thread through a process queue: if that thread dies of a full
disk the queue fills and training hangs, and a killed run loses what was queued. So we take its messages, and write
the records ourselves: length, checksum of the length, bytes, checksum of the bytes.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np

from starling.records.files import AppendFile

__all__ = ["EventFile"]


class EventFile:
    """One event file of a TensorBoard directory; events from ``purge_step`` on in older files are hidden."""

    def __init__(self, directory: Path, purge_step: int | None = None) -> None:
        # Imported here: it takes a third of a second, and reading metrics does not need it.
        from tensorboardX import summary
        from tensorboardX.crc32c import crc32c
        from tensorboardX.proto import event_pb2

        self._summary, self._proto, self._crc32c = summary, event_pb2, crc32c
        directory.mkdir(exist_ok=True)
        # The name ends in process and time: a run resumed within a second must not write into its first file.
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}.{time.monotonic_ns()}"
        self._file = AppendFile(directory / name)
        self._append(file_version="brain.Event:2")
        if purge_step is not None:
            self._append(step=purge_step, session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START))

    def write(self, step: int, values: dict[str, float], histograms: dict[str, np.ndarray]) -> None:
        """Append scalars and histograms."""
        found = self._summary.Summary()
        for name, value in values.items():
            found.MergeFrom(self._summary.scalar(name, value))
        for name, array in histograms.items():
            numbers = np.asarray(array, np.float64).reshape(-1)
            numbers = numbers[np.isfinite(numbers)].clip(-1e38, 1e38)  # the format adds up their squares
            if numbers.size:  # a histogram of nothing cannot be drawn; the scalars tell of the nan
                found.MergeFrom(self._summary.histogram(name, numbers, bins=_edges(numbers)))
        self._append(step=step, summary=found)

    def close(self) -> None:
        """Close the file; harmless when done twice."""
        self._file.close()

    def _append(self, **fields: Any) -> None:
        data = self._proto.Event(wall_time=time.time(), **fields).SerializeToString()
        length = struct.pack("<Q", len(data))
        self._file.append(length + self._checksum(length) + data + self._checksum(data))

    def _checksum(self, data: bytes) -> bytes:
        """The record format's checksum: CRC-32C, turned by fifteen bits and shifted by a constant."""
        crc = self._crc32c(data)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _edges(numbers: np.ndarray) -> np.ndarray:
    """Thirty bins over the range; one bin of some width where all numbers are equal, or nearly."""
    low, high = float(numbers.min()), float(numbers.max())
    edges = np.linspace(low, high, 31)
    if (np.diff(edges) > 0).all():
        return edges
    width = max(abs(low) * 1e-3, 1e-6)
    return np.array([low - width, high + width])
