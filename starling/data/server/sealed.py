"""Segments whose size is sealed: who makes shared memory shorter kills whoever looks into it (SIGBUS)."""

from __future__ import annotations

import errno
import importlib
import os
from typing import Any

from starling.core.errors import ConfigError, DataError
from starling.core.memory import human_bytes
from starling.core.segments import Field, Segment, segment_size

__all__ = ["make_segment", "open_segment"]

SEALABLE = hasattr(os, "MFD_ALLOW_SEALING")  # Linux


def _fcntl() -> tuple[Any, int]:
    """The module, which is not everywhere, and the seals against shrinking and growing."""
    fcntl = importlib.import_module("fcntl")
    return fcntl, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def make_segment(fields: list[Field]) -> Segment:
    """A segment whose memory is reserved, and sealed where the system can do that."""
    if not SEALABLE:
        return Segment(fields)
    fcntl, seals = _fcntl()
    size = segment_size(fields)
    descriptor = os.memfd_create("starling", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, size)
        os.posix_fallocate(descriptor, 0, size)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals | fcntl.F_SEAL_SEAL)
        return Segment(fields, descriptor)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.ENOSPC, errno.ENOMEM):
            raise ConfigError(
                f"{human_bytes(size)} of shared memory cannot be reserved ({error.strerror}); use fewer slots or "
                "smaller batches."
            ) from error
        raise


def open_segment(fields: list[Field], descriptor: int) -> Segment:
    """The other side's segment, which has the descriptor now; DataError where its size is another, or may change."""
    try:
        found, size = os.fstat(descriptor).st_size, segment_size(fields)
        if found != size:
            raise DataError(f"a segment of {found} bytes arrived, {size} were expected; is the server another version?")
        if SEALABLE and not _is_sealed(descriptor):
            raise DataError("a segment arrived whose size is not sealed; is the server another version?")
        return Segment(fields, descriptor)
    except (OSError, DataError):
        os.close(descriptor)
        raise


def _is_sealed(descriptor: int) -> bool:
    fcntl, seals = _fcntl()
    try:
        return fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & seals == seals
    except OSError:  # not even memory
        return False
