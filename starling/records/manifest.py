"""What a run was made of: versions, platform, seed, command, code state, and the settings that it began with."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from starling.core.machine import processors

__all__ = ["changed_settings", "describe_run", "git_commit"]

FORMAT, VERSION = "starling-run", 1
_PACKAGES = (
    *("ale-py", "envpool", "gymnasium", "jax", "jaxlib", "mujoco", "numba", "numpy", "optax", "ray", "safetensors"),
    "torch",
)
_UNSET = "not set"
_HARMLESS = {"quiet", "eval_episodes", "keep_checkpoints", "out", "preset"}  # cannot change what is learned


def describe_run(
    settings: Mapping[str, Any], began_with: Mapping[str, Any], command: Sequence[str] | None, inexact: str
) -> dict[str, Any]:
    """The manifest of a run that begins now, or goes on with other settings than those that it began with."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "starling": _version("starling-rl"),
        **{name: settings[name] for name in ("algo", "env", "seed")},
        "command": list(sys.argv if command is None else command),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "git_commit": git_commit(Path.cwd()),
        "resume_exact": not inexact,
        "resume_reason": inexact,
        "settings": _as_json(began_with),
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
        "platform": platform.platform(),
        "processors": processors(),
    }


def changed_settings(began_with: Mapping[str, Any] | None, now: Mapping[str, Any]) -> tuple[str, ...]:
    """Which settings are others than those that a run began with, in words; none where nobody knows these."""
    if began_with is None:
        return ()
    before, after = _by_path(began_with), _by_path(_as_json(now))
    return tuple(
        f"{name} was {before.get(name, _UNSET)!s:.60} when the run began and is {after.get(name, _UNSET)!s:.60} now"
        for name in before | after
        if before.get(name, _UNSET) != after.get(name, _UNSET) and name.partition(".")[0] not in _HARMLESS
    )


def _as_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they come back from a manifest."""
    values: dict[str, Any] = json.loads(json.dumps(settings, default=str))
    return values


def _by_path(settings: Mapping[str, Any], within: str = "") -> dict[str, Any]:
    """Each setting under its name, those of mappings with dots."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= _by_path(value, f"{within}{name}.") if isinstance(value, Mapping) else {f"{within}{name}": value}
    return found


def git_commit(directory: Path) -> str | None:
    """The commit checked out in ``directory``, with a ``+`` if files differ from it; None outside a repository."""
    try:
        head = _git(directory, "rev-parse", "HEAD")
        return head + ("+" if _git(directory, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(directory: Path, *arguments: str) -> str:
    # --no-optional-locks: looking must not disturb a git command that runs at the same time.
    command = ["git", "--no-optional-locks", *arguments]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=5, check=True)
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
