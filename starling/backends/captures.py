"""Captures: named values taken out of a computation without changing its signature.

    with capturing() as values:
        loss = algorithm.loss(...)        # somewhere inside: capture("q.q_values", q)
    values["q.q_values"]

A value captured inside a transformed function (a gradient, a loop) must leave it as one of its results:
``with_captures`` is how a backend's ``value_and_grad`` and ``scan`` do that. Outside of ``capturing``, ``capture`` does
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

__all__ = ["capture", "capture_all", "capturing", "with_captures"]

_captured: ContextVar[dict[str, Any] | None] = ContextVar("captured", default=None)


@contextmanager
def capturing() -> Iterator[dict[str, Any]]:
    """Collect what is captured inside the block."""
    values: dict[str, Any] = {}
    token = _captured.set(values)
    try:
        yield values
    finally:
        _captured.reset(token)


def capture(name: str, value: Any) -> None:
    """Capture ``value`` under ``name``; a later one of the same name takes its place."""
    values = _captured.get()
    if values is not None:
        values[name] = value


def capture_all(values: dict[str, Any]) -> None:
    """Capture every value of ``values``."""
    for name, value in values.items():
        capture(name, value)


def with_captures(fn: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, tuple[Any, dict[str, Any]]]]:
    """``fn`` with what it captured beside its second result: ``(first, (second, captured))``."""

    def run(*args: Any) -> tuple[Any, tuple[Any, dict[str, Any]]]:
        if _captured.get() is None:
            first, second = fn(*args)
            return first, (second, {})
        with capturing() as values:
            first, second = fn(*args)
        return first, (second, values)

    return run
