"""What a run was made of: versions, platform, seed, command, code state."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from starling.core.machine import processors

__all__ = ["describe_run", "git_commit"]

FORMAT, VERSION = "starling-run", 1
_PACKAGES = (
    *("ale-py", "envpool", "gymnasium", "jax", "jaxlib", "mujoco", "numba", "numpy", "optax", "ray", "safetensors"),
    "torch",
)


def describe_run(
    *, algo: str, env: str, seed: int, command: Sequence[str] | None, resume_exact: bool, reason: str
) -> dict[str, Any]:
    """The manifest of a run that begins now."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "starling": _version("starling-rl"),
        "algo": algo,
        "env": env,
        "seed": seed,
        "command": list(sys.argv if command is None else command),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "git_commit": git_commit(Path.cwd()),
        "resume_exact": resume_exact,
        "resume_reason": reason,
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
        "platform": platform.platform(),
        "processors": processors(),
    }


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
