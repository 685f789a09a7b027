"""Bells: what is in shared memory says nothing by itself, so whoever changes it wakes those who wait for the change."""

from __future__ import annotations

import contextlib
import os
import select
import time

__all__ = ["listen", "make_bell", "ring"]

BLINK = 0.001  # seconds; poll cannot wait for less


def make_bell() -> tuple[int, int]:
    """The descriptor at which one process listens, and that at which all others ring."""
    listening, ringing = os.pipe()
    os.set_blocking(listening, False)
    os.set_blocking(ringing, False)
    return listening, ringing


def ring(bell: int) -> None:
    """Wake the process that listens, or keep it from falling asleep; never waits."""
    with contextlib.suppress(OSError):  # it is gone, or was rung for often enough
        os.write(bell, b"!")


def listen(bell: int, seconds: float) -> None:
    """Wait until somebody rings, or has rung since the last time, but no longer than so."""
    if seconds < BLINK:
        time.sleep(seconds)
    else:
        poll = select.poll()  # select itself fails from descriptor 1,024 on
        poll.register(bell, select.POLLIN)
        poll.poll(1e3 * seconds)
    with contextlib.suppress(BlockingIOError):
        os.read(bell, 4096)
