"""Metrics of a run: one JSON line per report in ``metrics.jsonl``, and the same as TensorBoard events.

    {"env_steps": 2048, "seconds": 1.93, "episode_return": 21.7, "loss": "nan"}

Numbers that are not finite are the strings "nan", "inf" and "-inf", so every line is valid JSON.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from starling.core.errors import DataError, RunDirError
from starling.records.events import EventFile
from starling.records.files import AppendFile, explain, write_atomic
from starling.records.run_dir import RunDir

__all__ = ["Metrics", "read"]

NAME = "metrics.jsonl"
_RESERVED = ("env_steps", "seconds")
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class Metrics:
    """Appends reports. Each line is with the operating system when ``write`` returns, so a crash loses none.

    ``resume_step=s`` drops what an interrupted run reported after step s, so the file tells one history; the clock
    goes on from the last line kept.
    """

    def __init__(
        self, run_dir: RunDir | Path | str, *, resume_step: int | None = None, tensorboard: bool = True
    ) -> None:
        directory = _directory(run_dir)
        self._path = directory / NAME
        kept = _repair(self._path, resume_step)
        self._started = time.monotonic() - (kept[-1]["seconds"] if kept else 0.0)
        try:
            self._lines = AppendFile(self._path)
            purge_step = None if resume_step is None else resume_step + 1
            self._events = EventFile(directory / "tensorboard", purge_step) if tensorboard else None
        except OSError as reason:
            raise RunDirError(explain(reason, f"cannot write {self._path}", directory, 0)) from reason

    def write(self, step: int, values: Mapping[str, float], histograms: Mapping[str, np.ndarray] | None = None) -> None:
        """Report ``values`` after ``step`` environment steps; histograms go to TensorBoard alone."""
        if wrong := [name for name in values if name in _RESERVED]:
            raise DataError(f"{wrong[0]!r} cannot be reported: every line has its own; rename it.")
        numbers = {name: float(value) for name, value in values.items()}
        seconds = round(time.monotonic() - self._started, 3)
        row = {"env_steps": int(step), "seconds": seconds, **{name: _plain(x) for name, x in numbers.items()}}
        line = json.dumps(row, allow_nan=False).encode() + b"\n"
        try:
            self._lines.append(line)
            if self._events is not None:
                self._events.write(int(step), numbers, dict(histograms or {}))
        except OSError as reason:
            raise RunDirError(explain(reason, f"cannot write {self._path}", self._path.parent, len(line))) from reason

    def close(self) -> None:
        """Close the files; harmless when done twice."""
        self._lines.close()
        if self._events is not None:
            self._events.close()

    def __enter__(self) -> Metrics:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def read(run_dir: RunDir | Path | str) -> list[dict[str, Any]]:
    """The reports of a run, oldest first; a last line torn by a crash is left out."""
    return _parse(_directory(run_dir) / NAME)[0]


def _parse(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The rows, and how many bytes of the file, from its start, hold them."""
    try:
        data = path.read_bytes() if path.exists() else b""
    except OSError as reason:
        raise RunDirError(f"{path} cannot be read: {reason.strerror}.") from reason
    rows: list[dict[str, Any]] = []
    good = end = 0
    first_bad: int | None = None
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        end += len(line)
        row = _row(line)
        if row is None:
            first_bad = first_bad or number
        elif first_bad is not None:
            raise RunDirError(f"{path}, line {first_bad}, is no report, yet reports follow; mend or remove it.")
        else:
            rows.append(row)
            good = end
    return rows, good


def _row(line: bytes) -> dict[str, Any] | None:
    """A line's report, or None if it is not a whole one."""
    try:
        row = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    if not isinstance(row, dict) or not all(isinstance(row.get(name), (int, float)) for name in _RESERVED):
        return None
    return {name: _NOT_FINITE.get(value, value) if isinstance(value, str) else value for name, value in row.items()}


def _repair(path: Path, resume_step: int | None) -> list[dict[str, Any]]:
    """Cut a torn end off, and the rows after ``resume_step``; the rows that stay."""
    rows, good = _parse(path)
    kept = rows if resume_step is None else [row for row in rows if row["env_steps"] <= resume_step]
    if len(kept) < len(rows):
        lines = (json.dumps({name: _plain(value) for name, value in row.items()}) + "\n" for row in kept)
        write_atomic(path, "".join(lines).encode(), RunDirError)
    elif path.exists() and path.stat().st_size > good:
        os.truncate(path, good)
    return kept


def _plain(value: Any) -> Any:
    """A value that JSON can hold."""
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def _directory(run_dir: RunDir | Path | str) -> Path:
    return run_dir.path if isinstance(run_dir, RunDir) else Path(run_dir)
