"""Replaying a recorded run in one thread."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starling.core.effects import Checkpoint, Report
from starling.core.errors import ConfigError, RunError
from starling.executors.recording import replay
from starling.experiments.config import resolve
from starling.experiments.program import CUT_SHORT, Program
from starling.formations import RoleId
from starling.records.hashes import parameter_hash
from starling.records.progress import Progress
from starling.records.run_dir import RunDir

__all__ = ["ReplayedRun", "replay_run"]


@dataclass(frozen=True)
class ReplayedRun:
    """What a recorded run came to, then and now."""

    recorded: str
    replayed: str
    updates: int

    @property
    def same(self) -> bool:
        return self.recorded == self.replayed


class _Listener:
    """Hears of a replay: how far it is."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self.updates = progress, 0

    def stopping(self, role: RoleId, steps: int) -> bool:
        return False

    def report(self, role: RoleId, report: Report) -> None:
        self.updates = max(self.updates, int(report.values.get("updates", 0)))
        if report.steps >= 0:
            self._progress.update(report.steps, episode_return=report.values.get("episode_return"))

    def checkpoint(self, role: RoleId, checkpoint: Checkpoint) -> None: ...

    def status(self, status: dict[str, Any]) -> None: ...


def replay_run(run: str | Path, quiet: bool = False) -> ReplayedRun:
    """Run a recorded run again in one thread, with the choices that were made, and compare what it comes to."""
    run_dir = RunDir.open(RunDir.find(run), lock=False)
    recorded = run_dir.read_summary()
    if recorded.get("parameter_hash") is None:
        status = recorded.get("status", "it left no summary")
        raise RunError(f"{run_dir.path} did not come to an end ({status}); there is nothing to compare with.")
    program = Program(resolve(run_dir.read_config()), None, run_dir.path)
    if program.record is None:
        raise ConfigError(f"{run_dir.path} was not recorded; train with --record to replay a run.")
    if (program.record / CUT_SHORT).exists():
        raise RunError(
            f"{run_dir.path} was interrupted and resumed, and what it did then was not recorded; a replay needs a run "
            "that was recorded from its beginning to its end."
        )
    title = f"replaying {program.run.options.algo} in one thread"
    with Progress(program.length.total, title, quiet=quiet) as progress:
        listener = _Listener(progress)
        results = replay(program, listener, program.record)
    return ReplayedRun(recorded["parameter_hash"], parameter_hash(program.weights(results)), listener.updates)
