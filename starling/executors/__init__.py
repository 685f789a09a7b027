"""Executors: what makes a formation run. They know roles, edges and effects, and nothing of algorithms."""

from __future__ import annotations

from collections.abc import Callable

from starling.core.importing import imported
from starling.core.registry import Registry
from starling.executors.base import DeadlockError, Executable, ExecutorKind, Results, Start, Watcher

__all__ = ["EXECUTORS", "DeadlockError", "Executable", "ExecutorKind", "Results", "Start", "Watcher", "get_executor"]

_HERE = "starling.executors"
_OWN = {
    "inline": ExecutorKind("every role in one thread, in a fixed order", f"{_HERE}.inline:run"),
    "simulated": ExecutorKind(
        "one thread and a virtual clock, with seeded speeds, delays and faults",
        f"{_HERE}.simulated:run",
        takes=("simulation",),
    ),
    "processes": ExecutorKind(
        "a process for each role, with shared memory between them",
        f"{_HERE}.processes:run",
        takes=("record", "pin_cpus", "heartbeat"),
        apart=True,
    ),
}
EXECUTORS: Registry[ExecutorKind] = Registry("executor", _OWN, ExecutorKind)

Executor = Callable[[Executable, Watcher, bool], Results]


def get_executor(name: str) -> Executor:
    """The executor called ``name``: ``run(program, watcher, restore)``."""
    run: Executor = imported(EXECUTORS[name].run)
    return run
