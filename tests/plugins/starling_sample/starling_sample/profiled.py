"""``inline``, with Python's profiler on."""

from __future__ import annotations

import cProfile

from starling.executors import ExecutorKind, Program, Results, Watcher, inline

__all__ = ["PROFILED", "run"]


def run(program: Program, watcher: Watcher, restore: bool = False) -> Results:
    """Leaves ``profile`` in the run directory."""
    profile = cProfile.Profile()
    try:
        return profile.runcall(inline.run, program, watcher, restore)
    finally:
        if program.directory is not None:
            profile.dump_stats(program.directory / "profile")


PROFILED = ExecutorKind("every role in one thread, under Python's profiler", f"{__name__}:run")
