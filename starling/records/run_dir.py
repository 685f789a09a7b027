"""Run directories: everything that a run leaves behind, in one place, used by one process at a time.

runs/20260131-142500-ppo-CartPole-v1/
├── config.yaml       the resolved configuration
├── manifest.json     versions, platform, seed, command, the first settings, whether resuming is exact
├── summary.json      how it went, rewritten as it goes
├── status.json       who did or waited for what at last, where the executor tells
├── logs/             what roles wrote to their error output, where they have processes
├── metrics.jsonl     one line per report (see metrics.py); older ones are thinned at 64 MB
├── tensorboard/      the same, for TensorBoard, with the same bound
├── checkpoints/      the last few states
├── policy/           the final policy
└── curve.png         the learning curve
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from starling.core.errors import ConfigError, RunDirError, UnknownNameError
from starling.core.trees import Tree
from starling.core.yaml_files import parse_settings
from starling.records import checkpoint
from starling.records.files import WRITING, explain, read_bytes, write_atomic
from starling.records.layouts import MANIFEST, STATUS, SUMMARY, misfit
from starling.records.links import refuse_links_out
from starling.records.lock import RunLock
from starling.records.manifest import FORMAT, VERSION, describe_run

__all__ = ["RunDir"]

RUNS = Path("runs")
_SIZE_LIMIT = 2**26  # bytes of a configuration, manifest, summary or status
_LOG_LINES, _LOG_BYTES = 5, 8_192  # of the end of a log


class RunDir:
    """A run directory, made by ``create`` or opened by ``open``; a context manager that gives it free at the end."""

    def __init__(self, path: Path, lock: RunLock | None) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def create(cls, path: str | Path | None, algo: str, env: str) -> RunDir:
        """Make and lock a new run directory; by default below ``runs``, named after the time, algorithm and env."""
        if path is not None:
            found = Path(path)
            _make(found)
            if not (found / ".lock").exists():
                _refuse_used(found)  # before a lock is left among somebody's files
            refuse_links_out(found)
            lock = RunLock(found)  # a run that is still going on is told by its process
            try:
                _refuse_used(found)
            except RunDirError:
                lock.release()
                raise
            return cls(found, lock)
        stem = f"{datetime.now():%Y%m%d-%H%M%S}-{_sanitised(algo)}-{_sanitised(env)}"
        for found in _candidates(RUNS / stem):
            try:
                RUNS.mkdir(exist_ok=True)
                found.mkdir()
            except FileExistsError:
                if not RUNS.is_dir():
                    raise RunDirError(f"{RUNS.absolute()} is a file; move it, or choose another --out.") from None
            except OSError as reason:
                raise RunDirError(explain(reason, f"cannot make {found}", Path.cwd(), 0)) from reason
            else:
                return cls(found, RunLock(found))
        raise AssertionError("candidates never end")

    @classmethod
    def open(cls, path: str | Path, *, lock: bool = True) -> RunDir:
        """Open an existing run: locked, to go on with it; or with ``lock=False``, only to read.

        No link in a run that is gone on with may lead out of it.
        """
        found = Path(path)
        if not os.path.isdir(found):
            kind = "is a file" if os.path.exists(found) else "does not exist"
            raise RunDirError(f"{found} {kind}; a run directory was expected.")
        run = cls(found, None)
        run.read_manifest()
        if lock:
            refuse_links_out(found)  # before the lock, which is a file too
            run._lock = RunLock(found)
            checkpoint.clean(found)
        return run

    @staticmethod
    def find(run: str | Path) -> Path:
        """The directory of a run given by its path, or by its name below ``runs``."""
        for candidate in (Path(run), RUNS / run):
            if os.path.isfile(candidate / "manifest.json"):
                return candidate
        if os.path.exists(run):
            raise RunDirError(f"{run} is no run directory: it has no manifest.json.")
        known = [entry.parent.name for entry in RUNS.glob("*/manifest.json")]
        raise UnknownNameError("run", run, known, where=f"{RUNS}/")

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Write the resolved configuration."""
        try:
            text = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
        except yaml.YAMLError as reason:
            raise ConfigError(f"the configuration cannot be written as YAML: {reason}; use plain values.") from reason
        parse_settings(text.encode(), "the configuration", ConfigError)  # else nobody could resume the run
        self._write("config.yaml", text)

    def write_manifest(
        self,
        settings: Mapping[str, Any],
        command: Sequence[str] | None = None,
        inexact: str = "",
        began_with: Mapping[str, Any] | None = None,
    ) -> None:
        """Write what the run is made of: this makes the directory a run.

        ``inexact`` says why resuming is not exact, where it is not; ``began_with`` are the settings that a run that
        goes on began with.
        """
        manifest = describe_run(settings, settings if began_with is None else began_with, command, inexact)
        self._write("manifest.json", json.dumps(manifest, indent=2) + "\n")

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Rewrite the summary as a whole; numbers that are not finite become null."""
        self._write("summary.json", json.dumps(_finite(dict(summary)), indent=2, allow_nan=False) + "\n")

    def read_config(self) -> dict[str, Any]:
        """The resolved configuration."""
        return parse_settings(self._read("config.yaml"), str(self.path / "config.yaml"), RunDirError)

    def read_manifest(self) -> dict[str, Any]:
        """What the run is made of; checks that this is a run directory we can read."""
        if not (self.path / "manifest.json").exists():
            raise RunDirError(f"{self.path} is no run directory: it has no manifest.json.")
        manifest = self._read_json("manifest.json")
        if manifest.get("format") != FORMAT or manifest.get("version") != VERSION:
            raise RunDirError(
                f"{self.path} is a {manifest.get('format')!r:.60} of version {manifest.get('version')!r:.20}; "
                f"{FORMAT!r} of version {VERSION} was expected. Open it with the program that wrote it."
            )
        return self._fitting("manifest.json", manifest, MANIFEST)

    def read_summary(self) -> dict[str, Any]:
        """The last summary; empty if none was written yet."""
        if not (self.path / "summary.json").exists():
            return {}
        return self._fitting("summary.json", self._read_json("summary.json"), SUMMARY)

    def read_status(self) -> dict[str, Any] | None:
        """The last status; None where the run's executor leaves none."""
        if not (self.path / "status.json").exists():
            return None
        return self._fitting("status.json", self._read_json("status.json"), STATUS)

    def read_logs(self) -> dict[str, list[str]]:
        """The last lines of each role's log, of those that have any."""
        logs = {log.stem: _last_lines(log) for log in sorted(self.path.glob("logs/*.log"))}
        return {role: lines for role, lines in logs.items() if lines}

    def save_policy(self, tree: Tree, meta: dict[str, Any] | None = None) -> Path:
        """Save the final policy."""
        checkpoint.clean(self.path)
        return checkpoint.save(self.path, "policy", tree, meta)

    def load_policy(self) -> tuple[Tree, dict[str, Any]]:
        """The final policy: (tree, meta)."""
        return checkpoint.load(self.path / "policy")

    def close(self) -> None:
        """Give the directory free for other processes."""
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> RunDir:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _write(self, name: str, text: str) -> None:
        write_atomic(self.path / name, text.encode(), RunDirError)

    def _read(self, name: str) -> bytes:
        try:
            return read_bytes(self.path / name, _SIZE_LIMIT)
        except OSError as reason:
            raise RunDirError(f"{self.path / name} cannot be read: {reason.strerror}.") from reason

    def _read_json(self, name: str) -> dict[str, Any]:
        try:
            value = json.loads(self._read(name))
        except (ValueError, RecursionError) as reason:
            raise RunDirError(f"{self.path / name} is no JSON: {reason!s:.200}.") from reason
        if not isinstance(value, dict):
            raise RunDirError(f"{self.path / name} holds a {type(value).__name__}, not a JSON object.")
        return value

    def _fitting(self, name: str, value: dict[str, Any], layout: dict[str, Any]) -> dict[str, Any]:
        if wrong := misfit(value, layout):
            raise RunDirError(f"{self.path / name} was changed, or is of another version: {wrong}. Mend or remove it.")
        return value


def _last_lines(log: Path) -> list[str]:
    """Those that say something; none where the log cannot be read, which hides nothing of the others."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_BYTES))
            lines = file.read(_LOG_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []
    return [line.rstrip() for line in lines if line.strip()][-_LOG_LINES:]


def _make(path: Path) -> None:
    """Make one directory, or say why not."""
    if os.path.exists(path) and not os.path.isdir(path):
        raise RunDirError(f"{path} is a file; a run needs a directory: choose another --out.")
    if not os.path.exists(path.parent):
        raise RunDirError(f"{path.parent}, in which {path.name} would lie, does not exist; make it first.")
    try:
        path.mkdir(exist_ok=True)
    except OSError as reason:
        raise RunDirError(explain(reason, f"cannot make {path}", path.parent, 0)) from reason
    except ValueError as reason:
        raise RunDirError(
            f"{str(path)!r} is no name that a directory can have ({reason}). Choose another --out."
        ) from None


def _refuse_used(path: Path) -> None:
    """A directory with anything in it but a lock, or a file cut short, is somebody's work."""
    held = sorted(entry for entry in os.listdir(path) if not entry.startswith((".lock", WRITING)))
    if not held:
        return
    if "manifest.json" not in held:
        raise RunDirError(f"{path} is not empty (it holds {held[0]}); choose another --out.")
    state = "a finished" if "policy" in held else "an interrupted"
    raise RunDirError(f"{path} holds {state} run; use `starling resume {path}`, or choose another --out.")


def _candidates(path: Path) -> Iterator[Path]:
    """The path itself, then with -2, -3, …"""
    yield path
    count = 2
    while True:
        yield path.with_name(f"{path.name}-{count}")
        count += 1


def _sanitised(name: str) -> str:
    """A name that is harmless in a path: ``ALE/Pong-v5`` becomes ``ALE-Pong-v5``."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-.")[:60] or "unnamed"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(child) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(child) for child in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
