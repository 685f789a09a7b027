"""The checkpoints of a run: one directory per step, the last few kept."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from starling.core.errors import CheckpointError
from starling.core.trees import Tree
from starling.records import checkpoint
from starling.records.files import WRITING

__all__ = ["Checkpoints"]

_STEP = re.compile(r"step-(\d{12,18})")


class Checkpoints:
    """Saves, finds and forgets the checkpoints of a run.

        checkpoints = Checkpoints(run.path / "checkpoints", keep=3)
        checkpoints.save(step, tree)
        tree, meta = checkpoints.load()         # the newest that is whole; meta["step"] says which

    ``beside`` are the directories of others that go on together with this one: found is only what all of them have.
    ``skipped`` says in words which newer ones the last ``latest`` or ``load`` passed over, and why. Reading changes
    nothing on disk, so a run may be looked at while it trains; only its one writer may save or rewind.
    """

    def __init__(self, directory: Path, keep: int = 3, beside: Sequence[Path] = ()) -> None:
        if keep < 1:
            raise CheckpointError(f"keep={keep} would keep no checkpoint at all; choose at least 1.")
        self.directory = Path(directory)
        self.keep = keep
        self._beside = [Checkpoints(other, keep) for other in beside]
        self.skipped: list[str] = []

    def path(self, step: int) -> Path:
        """Where the checkpoint of ``step`` lies."""
        return self.directory / f"step-{step:012d}"

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, whole or not, oldest first."""
        names = os.listdir(self.directory) if self.directory.is_dir() else []
        found = (_STEP.fullmatch(name.removeprefix(".replaced-")) for name in names)
        return sorted({int(match[1]) for match in found if match})

    def save(self, step: int, tree: Tree, meta: dict[str, Any] | None = None) -> Path:
        """Save the state at ``step``, then forget all but the last ``keep`` up to it."""
        if step < 0:
            raise CheckpointError(f"step={step} is negative; steps count from 0.")
        checkpoint.clean(self.directory)
        path = checkpoint.save(self.directory, self.path(step).name, tree, {**(meta or {}), "step": step})
        earlier = [other for other in self.steps() if other <= step]
        for old in earlier[: -self.keep]:
            self._forget(old)
        return path

    def latest(self) -> int | None:
        """The newest step whose checkpoint is whole, or None."""
        self.skipped = []
        for step in reversed(self._common()):
            try:
                for each in (self, *self._beside):
                    checkpoint.verify(each.path(step))
            except CheckpointError as reason:
                self.skipped.append(str(reason))
            else:
                return step
        return None

    def load(self, step: int | None = None) -> tuple[Tree, dict[str, Any]]:
        """The checkpoint of ``step``, or the newest that is whole: (tree, meta)."""
        self.skipped = []
        known = self.steps()
        if step is not None:
            if step not in known:
                listed = ", ".join(map(str, known)) or "none"
                raise CheckpointError(f"{self.directory} has no checkpoint of step {step}; there are: {listed}.")
            return checkpoint.load(self.path(step))
        for candidate in reversed(self._common()):
            try:
                for other in self._beside:
                    checkpoint.verify(other.path(candidate))
                return checkpoint.load(self.path(candidate))
            except CheckpointError as reason:
                self.skipped.append(str(reason))
        missing = [str(other.directory) for other in self._beside if not set(known) & set(other.steps())]
        alone = f"It has those of steps {known}, of which {', '.join(missing)} has none." if known and missing else ""
        why = " ".join(self.skipped) or alone or "It is empty; the run was interrupted before its first checkpoint."
        raise CheckpointError(f"{self.directory} has no checkpoint that can be loaded. {why}")

    def rewind(self, step: int) -> None:
        """Forget every checkpoint after ``step``: a run that resumes from it writes another history."""
        checkpoint.clean(self.directory)
        for later in self.steps():
            if later > step:
                self._forget(later)

    def _common(self) -> list[int]:
        """The steps that this one and all beside it have a checkpoint of."""
        others = [other.steps() for other in self._beside]
        return [step for step in self.steps() if all(step in steps for steps in others)]

    def _forget(self, step: int) -> None:
        """Remove a checkpoint; under a hidden name first, so that a crash leaves no half of it to stumble over."""
        doomed = self.directory / f"{WRITING}{self.path(step).name}-forgotten"
        try:
            os.rename(self.path(step), doomed)
        except OSError:
            return  # it stays, takes room, and harms nobody
        shutil.rmtree(doomed, ignore_errors=True)
