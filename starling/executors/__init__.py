"""Executors: what makes a formation run. They know roles, edges and effects, and nothing of algorithms."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from starling.core.errors import UnknownNameError
from starling.executors.base import DeadlockError, Program, Results, Start, Watcher

__all__ = ["EXECUTORS", "DeadlockError", "Program", "Results", "Start", "Watcher", "get_executor"]

EXECUTORS = {
    "inline": "every role in one thread, in a fixed order",
    "simulated": "one thread and a virtual clock, with seeded speeds, delays and faults",
    "processes": "a process for each role, with shared memory between them",
}

Executor = Callable[[Program, Watcher, bool], Results]


def get_executor(name: str) -> Executor:
    """The executor called ``name``: ``run(program, watcher, restore)``."""
    if name not in EXECUTORS:
        raise UnknownNameError("executor", name, EXECUTORS)
    run: Executor = importlib.import_module(f"starling.executors.{name}").run
    return run
