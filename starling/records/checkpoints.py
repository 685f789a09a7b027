"""The checkpoints of a run: one directory per step, the last few kept.

Parts of a state that are ``Saveable`` lie beside them, in ``parts``, under the same numbers. They are written first and
forgotten last, so whatever is killed in between, the parts of each checkpoint that can be found are there.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from starling.core.errors import CheckpointError
from starling.core.saveable import Saveable, Saved
from starling.core.trees import Tree, items, map_with_path
from starling.records import checkpoint
from starling.records.files import WRITING, explain

__all__ = ["Checkpoints"]

_STEP = re.compile(r"step-(\d{12,18})")
PARTS = "parts"
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,199}")
SavedIn = Callable[[Path, int], Saved]


class Checkpoints:
    """Saves, finds and forgets the checkpoints of a run.

        checkpoints = Checkpoints(run.path / "checkpoints", keep=3)
        checkpoints.save(step, tree)
        tree, meta = checkpoints.load()         # the newest that is whole; meta["step"] says which

    ``beside`` are the directories of others that go on together with this one: found is only what all of them have.
    ``saved_in`` makes what stands in a loaded state for a part that lies in a directory, under a number; without it the
    part's name stands there.
    ``skipped`` says in words which newer ones the last ``latest`` or ``load`` passed over, and why. Reading changes
    nothing on disk, so a run may be looked at while it trains; only its one writer may save or rewind.
    """

    def __init__(
        self, directory: Path, keep: int = 3, beside: Sequence[Path] = (), saved_in: SavedIn | None = None
    ) -> None:
        if keep < 1:
            raise CheckpointError(f"keep={keep} would keep no checkpoint at all; choose at least 1.")
        self.directory = Path(directory)
        self.keep = keep
        self._saved_in = saved_in
        self._beside = [Checkpoints(other, keep, saved_in=saved_in) for other in beside]
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
        meta = {**(meta or {}), "step": step}
        parts = {at: leaf for at, leaf in items(tree) if isinstance(leaf, Saveable)}
        if parts:
            self._save_parts(parts, step)
            tree = map_with_path(lambda at, leaf: at if at in parts else leaf, tree)
            meta["parts"] = sorted(parts)
        path = checkpoint.save(self.directory, self.path(step).name, tree, meta)
        earlier = [other for other in self.steps() if other <= step]
        for old in earlier[: -self.keep]:
            self._forget(old)
        for part in parts.values():
            with contextlib.suppress(OSError):  # what stays takes room, and harms nobody
                part.retain(self.steps())
        return path

    def _save_parts(self, parts: Mapping[str, Saveable], step: int) -> None:
        for name, part in parts.items():
            directory = self._place(name)
            try:
                part.save(directory, step)
            except OSError as reason:
                what = f"cannot save {name} of {self.path(step)} (the previous checkpoint is untouched)"
                raise CheckpointError(explain(reason, what, self.directory, None)) from reason

    def _place(self, name: str) -> Path:
        """Where a part lies, by its path in the state."""
        if not _PART.fullmatch(name):
            raise CheckpointError(f"{name!r:.200} is no name of a part of a state in {self.directory}.")
        return self.directory / PARTS / name

    def _saved_parts(self, meta: dict[str, Any], step: int) -> dict[str, Saved]:
        """What stands for the parts of a checkpoint, by their paths in the state."""
        if self._saved_in is None:
            return {}
        names = meta.get("parts", [])
        if not isinstance(names, list):
            raise CheckpointError(f"{self.path(step)} has parts beside it that cannot be read: {names!r:.200}.")
        return {str(name): self._saved_in(self._place(str(name)), step) for name in names}

    def _verify(self, step: int) -> None:
        """CheckpointError unless the checkpoint and its parts are whole."""
        for part in self._saved_parts(checkpoint.verify(self.path(step)), step).values():
            part.verify()

    def _read(self, step: int) -> tuple[Tree, dict[str, Any], dict[str, Saved]]:
        """A checkpoint, its meta, and its parts, which are in the tree but are not verified."""
        tree, meta = checkpoint.load(self.path(step))
        parts = self._saved_parts(meta, step)
        return (map_with_path(lambda at, leaf: parts.get(at, leaf), tree) if parts else tree), meta, parts

    def latest(self) -> int | None:
        """The newest step whose checkpoint is whole, or None."""
        self.skipped = []
        for step in reversed(self._common()):
            try:
                for each in (self, *self._beside):
                    each._verify(step)
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
            return self._read(step)[:2]
        for candidate in reversed(self._common()):
            try:
                for other in self._beside:
                    other._verify(candidate)
                tree, meta, parts = self._read(candidate)
                for part in parts.values():
                    part.verify()
                return tree, meta
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
