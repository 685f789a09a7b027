"""What the machine has, and how a process uses it."""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

__all__ = ["give_way", "keep_freed_memory", "processors"]

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # as glibc's malloc.h numbers what mallopt sets
LARGEST = 32 << 20  # bytes; the most that glibc takes for MMAP_THRESHOLD


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def give_way(niceness: int) -> None:
    """Make every thread of this process nicer: Linux ranks each by itself, and environments bring their own."""
    tasks = Path("/proc/self/task")
    for thread in [int(task.name) for task in tasks.iterdir()] if tasks.exists() else [0]:
        with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + niceness)


def keep_freed_memory() -> bool:
    """Reuse freed blocks of up to 32 MB instead of giving them back to the system; whether this system can.

    glibc maps a large block anew for each allocation, and the system then clears it page by page at the first touch.
    Where every operation allocates its result, that takes longer than the operation.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, or another system
        return False
    return bool(mallopt(MMAP_THRESHOLD, LARGEST)) and bool(mallopt(TRIM_THRESHOLD, 1 << 30))
