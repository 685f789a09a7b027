"""The tape: named values taken out of a computation without changing its signature.

    with recording() as values:
        loss = algorithm.loss(...)        # somewhere inside: record("q.q_values", q)
    values["q.q_values"]

A value recorded inside a transformed function (a gradient, a loop) must leave it as one of its results: ``carried``
is how a backend's ``value_and_grad`` and ``scan`` do that. With no tape running, ``record`` does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

__all__ = ["carried", "record", "record_all", "recording"]

_tape: ContextVar[dict[str, Any] | None] = ContextVar("tape", default=None)


@contextmanager
def recording() -> Iterator[dict[str, Any]]:
    """Collect what is recorded inside the block."""
    values: dict[str, Any] = {}
    token = _tape.set(values)
    try:
        yield values
    finally:
        _tape.reset(token)


def record(name: str, value: Any) -> None:
    """Note ``value`` under ``name``; a later one of the same name takes its place."""
    tape = _tape.get()
    if tape is not None:
        tape[name] = value


def record_all(values: dict[str, Any]) -> None:
    """Note every value of ``values``."""
    for name, value in values.items():
        record(name, value)


def carried(fn: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, tuple[Any, dict[str, Any]]]]:
    """``fn`` with what it recorded beside its second result: ``(first, (second, recorded))``."""

    def with_tape(*args: Any) -> tuple[Any, tuple[Any, dict[str, Any]]]:
        if _tape.get() is None:
            first, second = fn(*args)
            return first, (second, {})
        with recording() as values:
            first, second = fn(*args)
        return first, (second, values)

    return with_tape
