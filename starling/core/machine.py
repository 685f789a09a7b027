"""What the machine has, how processes use it, and how long a call takes on it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

__all__ = [
    "Heartbeat",
    "allow_descriptors",
    "give_way",
    "keep_freed_memory",
    "pin",
    "process_state",
    "processor_ticks",
    "processors",
    "time_calls",
]

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # as glibc's malloc.h numbers what mallopt sets
LARGEST = 32 << 20  # bytes; the most that glibc takes for MMAP_THRESHOLD


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def process_state(pid: int) -> Literal["running", "stopped", "gone"]:
    """Whether a process is stopped by a signal, or gone; one that waits is running, and so is any on other systems."""
    if not Path("/proc/self/stat").exists():
        return "running"
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "gone"
    return "stopped" if state in "Tt" else "gone" if state in "ZX" else "running"


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


def pin(place: int) -> None:
    """Keep this process to one of the processors that it may use; those with other places have others in turn."""
    available = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, [available[place % len(available)]])


def allow_descriptors(count: int) -> None:
    """Let this process and its children have so many descriptors open, if the system permits."""
    import resource  # of POSIX systems alone

    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    permitted = count if most == resource.RLIM_INFINITY else min(count, most)
    if now != resource.RLIM_INFINITY and now < permitted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (permitted, most))


def processor_ticks(pid: int) -> int | None:
    """Processor time that a process has used; None where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[11]) + int(fields[12])  # in user mode and in the kernel


class Heartbeat:
    """When a process last gave a sign of life: it says that it goes on, or it uses the processor.

    A long computation or a slow environment is at work; a process that is stuck in a call that never returns, or that
    somebody has stopped, gives neither sign.
    """

    def __init__(self) -> None:
        self._sign: tuple[int, float, int | None] | None = None
        self._at = 0.0

    def silence(self, pid: int, beat: float, now: float) -> float:
        """Seconds since the last sign of life; ``beat`` is when the process last said that it goes on."""
        sign = (pid, beat, processor_ticks(pid))
        if sign != self._sign or sign[2] is None:
            self._sign, self._at = sign, now
        return now - self._at


def time_calls(call: Callable[[], Any], seconds: float) -> tuple[float, int, float]:
    """Call for about so long, twice at least: the mean, how many calls it is of, and how long the first one took apart.

    The mean and not the median: a rare slow call, as when episodes end or others take the processor, slows runs too.
    """
    taken: list[float] = []
    until = float("inf")
    while len(taken) < 2 or time.perf_counter() < until:
        before = time.perf_counter()
        call()
        taken.append(time.perf_counter() - before)
        until = min(until, before + taken[0] + seconds)
    return statistics.fmean(taken[1:]), len(taken) - 1, taken[0]
