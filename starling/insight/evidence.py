"""What a run directory tells of how a run goes or went, gathered without disturbing it."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from starling.core.errors import RunDirError
from starling.formations import Counts
from starling.records.files import read_bytes
from starling.records.metrics import read
from starling.records.run_dir import RunDir

__all__ = ["Evidence", "gather"]

STATUS = "status.json"
LAST_LINES = 5  # of a log that are kept
LAST_BYTES = 8_192  # of a log that are looked at
LIMIT = 2**26  # bytes of a status
STALE = 15.0  # seconds after which the status of a run on another machine counts as the last one


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All that is known of a run; plain values, so that a diagnosis needs nothing else."""

    run: str
    algo: str
    env: str
    alive: bool  # a process holds the run's lock
    settings: dict[str, Any] = field(default_factory=dict)  # its configuration
    summary: dict[str, Any] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)  # its reports, oldest first
    metrics_age: float | None = None  # seconds since the last report
    status: dict[str, Any] | None = None  # who did or waited for what, at last
    status_age: float | None = None
    before: dict[str, Any] | None = None  # an earlier status: what changed between the two is what goes on now
    logs: dict[str, list[str]] = field(default_factory=dict)  # role -> last lines of its error output
    processes: dict[str, str] = field(default_factory=dict)  # role -> "stopped" or "gone", where it is no more at work
    processors: int = 1

    @property
    def counts(self) -> Counts:
        """The counts of its formation, as they were asked for."""
        return Counts(**{each.name: self.settings.get(each.name) for each in fields(Counts)})


def gather(run: str | Path, before: dict[str, Any] | None = None) -> Evidence:
    """Look at a run, alive or dead; ``before`` is the status of an earlier look."""
    directory = RunDir.find(run)
    opened = RunDir.open(directory, lock=False)
    manifest = opened.read_manifest()
    status = _read_status(directory / STATUS)
    age = None if status is None else max(0.0, time.time() - float(status.get("time", 0.0)))
    alive, here = _holder(directory, age)
    metrics = read(directory)
    reports = directory / "metrics.jsonl"
    return Evidence(
        run=str(run),
        algo=str(manifest.get("algo")),
        env=str(manifest.get("env")),
        alive=alive,
        settings=opened.read_config() if (directory / "config.yaml").exists() else {},
        summary=opened.read_summary(),
        metrics=metrics,
        metrics_age=max(0.0, time.time() - reports.stat().st_mtime) if metrics else None,
        status=status,
        status_age=age,
        before=before,
        logs=_last_words(directory / "logs"),
        processes=_processes(status) if alive and here and status is not None else {},
        processors=int(manifest.get("processors") or 1),
    )


def _read_status(path: Path) -> dict[str, Any] | None:
    """The last status; None where the run's executor leaves none."""
    if not path.exists():
        return None
    try:
        status = json.loads(read_bytes(path, LIMIT))
    except OSError as reason:
        raise RunDirError(f"{path} cannot be read: {reason.strerror}.") from reason
    except ValueError as reason:
        raise RunDirError(f"{path} is no JSON: {reason!s:.200}; remove it.") from reason
    if not isinstance(status, dict) or not all(isinstance(status.get(part), list) for part in ("roles", "edges")):
        raise RunDirError(f"{path} holds no status of roles and edges; remove it.")
    return status


def _holder(directory: Path, age: float | None) -> tuple[bool, bool]:
    """Whether a process holds the run, and whether it would be one on this machine."""
    try:
        note = json.loads(read_bytes(directory / ".lock.json", 4096))
        here = note["host"] == socket.gethostname()
    except (OSError, ValueError, KeyError, TypeError):
        return False, False  # whoever holds a run leaves a note, and removes it when it goes
    if not here:
        return age is not None and age < STALE, False
    try:
        descriptor = os.open(directory / ".lock", os.O_RDONLY)
    except OSError:
        return False, True
    try:
        # The holder's lock is exclusive: a shared one can be had only when it died without removing its note.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False, True
    except BlockingIOError:
        return True, True
    finally:
        os.close(descriptor)


def _last_words(logs: Path) -> dict[str, list[str]]:
    found = {}
    for path in sorted(logs.glob("*.log")):
        try:
            with path.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - LAST_BYTES))
                lines = file.read(LAST_BYTES).decode(errors="replace").splitlines()
        except OSError:
            continue  # one log that cannot be read hides nothing of the others
        if words := [line.rstrip() for line in lines if line.strip()][-LAST_LINES:]:
            found[path.stem] = words
    return found


def _processes(status: dict[str, Any]) -> dict[str, str]:
    """The roles whose processes are stopped or gone, as the operating system sees them."""
    found = {}
    for role in status["roles"]:
        if not role.get("pid") or role.get("state") == "done" or not Path("/proc/self/stat").exists():
            continue
        try:
            state = Path(f"/proc/{int(role['pid'])}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            found[role["role"]] = "gone"
        else:
            if state in "TtZX":
                found[role["role"]] = "stopped" if state in "Tt" else "gone"
    return found
