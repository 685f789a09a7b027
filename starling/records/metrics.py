"""Metrics of a run: one JSON line per report in ``metrics.jsonl``, and the same as TensorBoard events.

    {"env_steps": 2048, "seconds": 1.93, "episode_return": 21.7, "loss": "nan"}

Numbers that are not finite are the strings "nan", "inf" and "-inf", so every line is valid JSON. Steps only grow, and
what is kept is bounded: see ``thinning``.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from starling.core.errors import DataError, RunDirError
from starling.records.events import EventFiles
from starling.records.files import AppendFile, explain, write_atomic
from starling.records.lines import read_lines
from starling.records.run_dir import RunDir
from starling.records.thinning import thinned

__all__ = ["Metrics", "read"]

NAME = "metrics.jsonl"
MOST_BYTES = 64 << 20  # of metrics.jsonl, and of the TensorBoard events
_RESERVED = ("env_steps", "seconds")
_LARGEST = 2**63 - 1  # of whole numbers
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class Metrics:
    """Appends reports. Each line is with the operating system when ``write`` returns, so a crash loses none.

    ``resume_step=s`` drops what an interrupted run reported after step s, so the file tells one history; the clock
    goes on from the last line kept. At ``most_bytes`` older reports are thinned.
    """

    def __init__(
        self,
        run_dir: RunDir | Path | str,
        *,
        resume_step: int | None = None,
        tensorboard: bool = True,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        directory = _directory(run_dir)
        self._path, self._most = directory / NAME, most_bytes
        with self._explained(0):
            self._last, seconds = _repair(self._path, resume_step, most_bytes)
            self._started = time.monotonic() - seconds
            self._lines = AppendFile(self._path)
            purge_step = None if resume_step is None else resume_step + 1
            self._events = EventFiles(directory / "tensorboard", purge_step, most_bytes) if tensorboard else None

    def write(
        self,
        step: int,
        values: Mapping[str, float],
        histograms: Mapping[str, np.ndarray] | None = None,
        *,
        began_at: float | None = None,
    ) -> None:
        """Report ``values`` after ``step`` environment steps; histograms go to TensorBoard alone.

        Who reports went on from step ``began_at``: what was reported after it, in a history that was given up, goes.
        """
        if wrong := [name for name in values if name in _RESERVED]:
            raise DataError(f"{wrong[0]!r} cannot be reported: every line has its own; rename it.")
        step, numbers = int(step), {name: float(value) for name, value in values.items()}
        seconds = round(time.monotonic() - self._started, 3)
        row = {"env_steps": step, "seconds": seconds, **{name: _plain(x) for name, x in numbers.items()}}
        line = json.dumps(row, allow_nan=False).encode() + b"\n"
        earlier = step - 1 if began_at is None else min(step - 1, int(began_at))
        with self._explained(len(line)):
            if self._last > earlier:
                self._rewrite(earlier, self._most)
                if self._events is not None:
                    self._events.purge(earlier + 1)
            elif self._lines.size + len(line) > self._most:
                self._rewrite(None, self._most - len(line))
            self._lines.append(line)
            self._last = step
            if self._events is not None:
                self._events.write(step, numbers, dict(histograms or {}))

    def _rewrite(self, last_step: int | None, most_bytes: int) -> None:
        self._lines.close()
        _repair(self._path, last_step, most_bytes)
        self._lines = AppendFile(self._path)

    @contextmanager
    def _explained(self, needed: int) -> Iterator[None]:
        try:
            yield
        except OSError as reason:
            raise RunDirError(explain(reason, f"cannot write {self._path}", self._path.parent, needed)) from reason

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
    return [row for row, _ in _reports(_directory(run_dir) / NAME)]


def _reports(path: Path) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Each report with its line."""
    return read_lines(path, _row, "report", RunDirError)


def _row(line: bytes) -> dict[str, Any] | None:
    """A line's report, or None if it is none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    row = {name: _NOT_FINITE.get(value, value) if isinstance(value, str) else value for name, value in row.items()}
    steps, seconds = row.get("env_steps", -1), row.get("seconds", math.nan)
    whole = type(steps) is int and steps >= 0 and _is_number(seconds) and math.isfinite(seconds)
    return row if whole and all(map(_is_number, row.values())) else None


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) <= _LARGEST)


def _repair(path: Path, last_step: int | None, most_bytes: int) -> tuple[int, float]:
    """Cut off a torn end and what came after ``last_step``, and thin what takes too much; the last one's numbers."""
    last, seconds = -1, 0.0
    lines: list[tuple[int, bytes]] = []
    for row, line in _reports(path):
        if last_step is None or row["env_steps"] <= last_step:
            last, seconds = row["env_steps"], row["seconds"]
            lines.append((last, line))
    data = b"".join(thinned(lines, most_bytes))
    if path.exists() and path.stat().st_size != len(data):
        write_atomic(path, data, RunDirError)
    return last, seconds


def _plain(value: Any) -> Any:
    """A value that JSON can hold."""
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def _directory(run_dir: RunDir | Path | str) -> Path:
    return run_dir.path if isinstance(run_dir, RunDir) else Path(run_dir)
