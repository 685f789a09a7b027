"""Processes that run a module of ours: they import what this one would, and nobody is left of them when it is gone.

Each begins a group of processes: an interruption from the keyboard is for this process alone, and whatever it starts
itself can be ended with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["end_group", "end_with", "start_module"]

PR_SET_PDEATHSIG = 1  # as Linux numbers it for prctl


def start_module(
    module: str,
    argument: str,
    descriptors: Iterable[int],
    environment: Mapping[str, str] | None = None,
    errors: Any = None,
) -> subprocess.Popen[bytes]:
    """Start ``python -m module argument``, which gets these descriptors; ``errors`` is where its error output goes.

    Modules are found where they are found here. Without -P they would be looked for in the current folder first, and
    a file in it that is called like one of them would run.
    """
    search = os.pathsep.join(path or os.getcwd() for path in sys.path)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, argument],
        pass_fds=list(descriptors),
        env={**os.environ, **(environment or {}), "PYTHONPATH": search},
        stdin=subprocess.DEVNULL,
        stderr=errors,
        process_group=0,
    )


def end_with(parent: int) -> None:
    """In such a process: end with the parent even in the middle of a call; elsewhere than on Linux, not before it."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was gone before
        sys.exit(0)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process that was started here, and all that it has started itself."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # there is no one in its group any more
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
