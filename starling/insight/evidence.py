"""What a run directory tells of how a run goes or went, gathered without disturbing it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from starling.core.machine import process_state
from starling.insight.measures import Measures, measure
from starling.records.lock import is_held
from starling.records.metrics import read
from starling.records.run_dir import RunDir

__all__ = ["Evidence", "Finding", "gather"]

STALE = 15.0  # seconds after which the status of a run on another machine counts as the last one


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All that is known of a run; plain values, so that a diagnosis needs nothing else."""

    run: str
    alive: bool  # a process holds the run's lock
    manifest: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)  # its configuration
    summary: dict[str, Any] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)  # its reports, oldest first
    metrics_age: float = 0.0  # seconds since the last report
    status: dict[str, Any] | None = None  # who did or waited for what, at last
    status_age: float = 0.0
    measures: Measures  # what its roles did of late, or all the time
    logs: dict[str, list[str]] = field(default_factory=dict)  # role -> last lines of its error output
    processes: dict[str, str] = field(default_factory=dict)  # role -> "stopped" or "gone", where it does not run
    processors: int = 1

    @property
    def steps(self) -> int:
        """The steps of the run that anyone has reported."""
        roles = [] if self.status is None else [role["steps"] for role in self.status["roles"]]
        return int(max([*roles, *(row["env_steps"] for row in self.metrics[-1:])], default=0))


@dataclass(frozen=True)
class Finding:
    """Something worth knowing: what was seen, and what to do about it."""

    level: Literal["problem", "bottleneck", "note"]
    subject: str  # silent, lost, stuck, limiter, learner, actor …
    text: str
    remedy: str = ""
    lines: list[str] = field(default_factory=list)  # of a log


def gather(run: str | Path, before: dict[str, Any] | None = None) -> Evidence:
    """Look at a run, alive or dead; ``before`` is the status of an earlier look."""
    opened = RunDir.open(RunDir.find(run), lock=False)
    manifest, metrics, status, now = opened.read_manifest(), read(opened), opened.read_status(), time.time()
    processes: dict[str, str] = {}
    age = 0.0 if status is None else max(0.0, now - float(status["time"]))
    held = is_held(opened.path)
    alive = status is not None and age < STALE if held is None else held
    if held and status is not None:
        at_work = [role for role in status["roles"] if role["pid"] and role["state"] != "done"]
        states = {role["role"]: process_state(int(role["pid"])) for role in at_work}
        processes = {role: state for role, state in states.items() if state != "running"}
    return Evidence(
        run=str(run),
        alive=alive,
        manifest=manifest,
        settings=opened.read_config() if (opened.path / "config.yaml").exists() else {},
        summary=opened.read_summary(),
        metrics=metrics,
        metrics_age=max(0.0, now - (opened.path / "metrics.jsonl").stat().st_mtime) if metrics else 0.0,
        status=status,
        status_age=age,
        measures=measure(status, before),
        logs=opened.read_logs(),
        processes=processes,
        processors=int(manifest.get("processors") or 1),
    )
