"""Programs of small runs, run in this thread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starling.core.params import Params
from starling.envs import EnvLike
from starling.executors import get_executor
from starling.experiments.config import resolve
from starling.experiments.program import Program
from tests.executors.watchers import Watcher


def program_of(env: EnvLike | None = None, directory: Path | None = None, **settings: Any) -> Program:
    """The program of a run without a preset; ``env`` where a name is not enough."""
    return Program(resolve({"preset": "none", "backend": "torch", **settings}), env, directory)


class Keeping(Watcher):
    """Remembers, and keeps checkpoints where the program has a directory."""

    def __init__(self, program: Program, stop_after: int | None = None) -> None:
        super().__init__(stop_after)
        self._program = program

    def checkpoint(self, role, checkpoint):
        self.checkpoints.append((str(role), checkpoint.steps))
        if self._program.directory is not None:
            self._program.save(role, checkpoint, 0.0)

    @property
    def values(self) -> dict[str, Any]:
        """What was reported last."""
        return self.reports[-1][2]


def finish(program: Program, stop_after: int | None = None, restore: bool = False) -> tuple[Params, Keeping]:
    """Run to the end, or until it is asked to stop: the parameters, and what was heard of the run."""
    watcher = Keeping(program, stop_after)
    try:
        results = get_executor("inline")(program, watcher, restore)
    finally:
        program.close()
    return program.weights(results), watcher
