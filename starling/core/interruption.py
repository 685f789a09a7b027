"""Ctrl-C: the first asks for an orderly end, a second one ends at once."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["is_in", "stopping"]

PATIENCE = 1.5  # seconds after the first until somebody asks whether anything will come of it
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def _never(frame: FrameType | None, seconds: float) -> bool:
    return False


@contextmanager
def stopping(hangs: Callable[[FrameType | None, float], bool] = _never) -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets (or SIGTERM, or the end of a terminal); a second one interrupts at once.

    A call that does not return keeps whoever should look at the event from doing so. ``hangs`` says of the frame that
    runs, so many seconds after the first one, whether that is so; then there is no need of a second.
    """
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    asked = 0.0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if event.is_set():
            raise KeyboardInterrupt
        event.set()
        asked = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, PATIENCE, PATIENCE)

    def look(number: int, frame: FrameType | None) -> None:
        if hangs(frame, time.monotonic() - asked):
            raise KeyboardInterrupt("a step of an environment does not end")

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    before[signal.SIGALRM] = signal.signal(signal.SIGALRM, look)
    try:
        yield event
    finally:
        if event.is_set():
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number, handler in before.items():
            signal.signal(number, handler)


def is_in(frame: FrameType | None, package: str) -> bool:
    """Whether a call of one of the package's modules is under way."""
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(f"{package}."):
            return True
        frame = frame.f_back
    return False
