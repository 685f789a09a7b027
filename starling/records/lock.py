"""One process per run directory: a lock that dies with its holder, and a note of who holds it."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from starling.core.errors import RunDirError
from starling.records.files import explain, read_bytes, write_atomic

__all__ = ["RunLock", "is_held"]

LOCK, NOTE = ".lock", ".lock.json"


class RunLock:
    """The right to write into a run directory, held from construction until ``release``.

    The kernel drops the lock when its holder dies, however it dies, so a stale one needs no detective work. The note
    beside it serves the message alone. A forked child does not inherit the lock.
    """

    def __init__(self, directory: Path) -> None:
        self._note = directory / NOTE
        # thread_local=False: a run may be closed from another thread than the one that opened it.
        self._lock = FileLock(directory / LOCK, timeout=0, thread_local=False)
        try:
            self._lock.acquire()
        except (Timeout, RuntimeError) as reason:  # RuntimeError: this very thread holds it through another object
            raise RunDirError(
                f"{directory} is in use by {_holder(directory)}. Wait for it, stop it, or choose another --out."
            ) from reason
        except OSError as reason:
            raise RunDirError(explain(reason, f"cannot lock {directory}", directory, 0)) from reason
        note = {"pid": os.getpid(), "host": socket.gethostname(), "since": datetime.now().isoformat(" ", "seconds")}
        try:
            write_atomic(self._note, json.dumps(note).encode(), RunDirError)
        except BaseException:
            self._lock.release()
            raise

    def release(self) -> None:
        """Give the directory free; harmless when done twice or in a forked child."""
        if self._lock.is_locked:
            self._note.unlink(missing_ok=True)
            self._lock.release()


def is_held(directory: Path) -> bool | None:
    """Whether a process holds the directory; None where its holder was on another machine, which alone can tell."""
    note = _read_note(directory)
    if note is None:
        return False  # whoever holds a directory leaves a note, and removes it when it goes
    if note["host"] != socket.gethostname():
        return None
    try:
        # The holder's lock is exclusive: a shared one can be had only when it died without removing its note.
        with (directory / LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def _holder(directory: Path) -> str:
    """Who holds the directory, in words."""
    note = _read_note(directory)
    if note is None:
        return "another process that has only just begun"
    return f"process {note['pid']} on {note['host']}, since {note['since']}"


def _read_note(directory: Path) -> dict[str, Any] | None:
    """What the holder of the directory noted of itself: pid, host, since."""
    try:
        note = json.loads(read_bytes(directory / NOTE, 4096))
        return {about: note[about] for about in ("pid", "host", "since")}
    except (OSError, ValueError, KeyError, TypeError):
        return None
