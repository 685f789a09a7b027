"""``inline``, with Python's profiler on."""

from __future__ import annotations

import cProfile

from starling.executors import Executable, ExecutorKind, Results, Watcher, inline

__all__ = ["PROFILED", "run"]


def run(program: Executable, watcher: Watcher, restore: bool = False) -> Results:
    """Leaves ``profile`` in the run directory."""
    profile = cProfile.Profile()
    try:
        return profile.runcall(inline.run, program, watcher, restore)
    finally:
        if program.directory is not None:
            profile.dump_stats(program.directory / "profile")


PROFILED = ExecutorKind("every role in one thread, under Python's profiler", f"{__name__}:run")
