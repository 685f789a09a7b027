"""What a run directory tells of how a run goes or went, gathered without disturbing it."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from starling.core.errors import RunDirError
from starling.insight.measures import NOTHING, Measures, measure
from starling.records.files import read_bytes
from starling.records.metrics import read
from starling.records.run_dir import RunDir

__all__ = ["Evidence", "gather"]

STATUS = "status.json"
LAST_LINES = 5  # of a log that are kept
LAST_BYTES = 8_192  # of a log that are looked at
LIMIT = 2**26  # bytes of a status
STALE = 15.0  # seconds after which the status of a run on another machine counts as the last one
RECENT = 20  # reports over which lag is averaged
NOW = 10.0  # seconds over which speed is, or two reports


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

    @cached_property
    def measures(self) -> Measures:
        """What its roles did of late, or all the time."""
        return measure(self.status, self.before)

    @property
    def steps(self) -> int:
        """The steps of the run that anyone has told of."""
        roles = [] if self.status is None else [role["steps"] for role in self.status["roles"]]
        return int(max([*roles, *(row["env_steps"] for row in self.metrics[-1:])], default=0))

    @property
    def speed(self) -> float | None:
        """Steps per second of late."""
        if len(self.metrics) < 2:
            return None
        last = self.metrics[-1]
        first = next(row for row in self.metrics if row["seconds"] >= last["seconds"] - NOW or row is self.metrics[-2])
        return float(last["env_steps"] - first["env_steps"]) / max(last["seconds"] - first["seconds"], 1e-9)

    @property
    def lag(self) -> dict[str, float]:
        """How many updates old experience was of late, and how much was dropped for it; nothing where none is told."""
        rows = [row for row in self.metrics[-RECENT:] if "lag_mean" in row]
        if not rows:
            return {}
        mean, most = fmean(row["lag_mean"] for row in rows), max(row["lag_max"] for row in rows)
        return {"mean": mean, "max": most, "dropped_chunks": float(self.metrics[-1].get("dropped_chunks", 0.0))}


def gather(run: str | Path, before: dict[str, Any] | None = None) -> Evidence:
    """Look at a run, alive or dead; ``before`` is the status of an earlier look."""
    directory = RunDir.find(run)
    opened = RunDir.open(directory, lock=False)
    manifest, metrics, status = opened.read_manifest(), read(directory), _read_status(directory / STATUS)
    age = None if status is None else max(0.0, time.time() - float(status.get("time", 0.0)))
    alive, here = _holder(directory, age)
    return Evidence(
        run=str(run),
        algo=str(manifest.get("algo")),
        env=str(manifest.get("env")),
        alive=alive,
        settings=opened.read_config() if (directory / "config.yaml").exists() else {},
        summary=opened.read_summary(),
        metrics=metrics,
        metrics_age=max(0.0, time.time() - (directory / "metrics.jsonl").stat().st_mtime) if metrics else None,
        status=status,
        status_age=age,
        before=before,
        logs={path.stem: lines for path in sorted(directory.glob("logs/*.log")) if (lines := _last_lines(path))},
        processes=_processes(status) if alive and here and status is not None else {},
        processors=int(manifest.get("processors") or 1),
    )


def _read_status(path: Path) -> dict[str, Any] | None:
    """The last status; None where the run's executor leaves none."""
    try:
        status = json.loads(read_bytes(path, LIMIT))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as reason:
        raise RunDirError(f"{path} cannot be read as JSON: {reason!s:.200}; remove it.") from reason
    if not isinstance(status, dict) or not status.keys() >= NOTHING.keys():
        raise RunDirError(f"{path} holds no status of roles and edges; remove it.")
    return status


def _holder(directory: Path, age: float | None) -> tuple[bool, bool]:
    """Whether a process holds the run, and whether it would be one on this machine."""
    try:
        here = json.loads(read_bytes(directory / ".lock.json", 4096))["host"] == socket.gethostname()
    except (OSError, ValueError, KeyError, TypeError):
        return False, False  # whoever holds a run leaves a note, and removes it when it goes
    if not here:
        return age is not None and age < STALE, False
    try:
        # The holder's lock is exclusive: a shared one can be had only when it died without removing its note.
        with (directory / ".lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True, True
    except OSError:
        pass
    return False, True


def _last_lines(log: Path) -> list[str]:
    """Of a log; none where it cannot be read, since that hides nothing of the others."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LAST_BYTES))
            lines = file.read(LAST_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []
    return [line.rstrip() for line in lines if line.strip()][-LAST_LINES:]


def _processes(status: dict[str, Any]) -> dict[str, str]:
    """The roles whose processes are stopped or gone, as the operating system sees them."""
    found = {}
    for role in status["roles"]:
        if not role["pid"] or role["state"] == "done" or not Path("/proc/self/stat").exists():
            continue
        try:
            state = Path(f"/proc/{int(role['pid'])}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            state = "X"
        if state in "TtZX":
            found[role["role"]] = "stopped" if state in "Tt" else "gone"
    return found
