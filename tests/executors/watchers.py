"""A watcher that remembers."""

from __future__ import annotations

from typing import Any


class Watcher:
    """Remembers everything, and asks to stop after ``stop_after`` steps where that is given."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.stop_after = stop_after
        self.reports: list[tuple[str, int, dict[str, Any]]] = []
        self.checkpoints: list[tuple[str, int]] = []
        self.statuses: list[dict[str, Any]] = []

    def stopping(self, role, steps):
        return self.stop_after is not None and steps >= self.stop_after

    def report(self, role, report):
        self.reports.append((str(role), report.steps, report.values))

    def checkpoint(self, role, checkpoint):
        self.checkpoints.append((str(role), checkpoint.steps))
        assert checkpoint.state()

    def status(self, status):
        self.statuses.append(status)
