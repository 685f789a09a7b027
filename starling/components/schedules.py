"""Schedules: numbers that depend on how far a run has come.

A count that is a Python number gives a Python number; an array inside compiled code gives a float32 array.
"""

from __future__ import annotations

from typing import Any

from starling.components.base import Component
from starling.core.errors import ConfigError, UnknownNameError
from starling.maths import schedules as maths

__all__ = ["Constant", "Cosine", "Exponential", "Linear", "Piecewise", "Schedule", "as_schedule"]


class Schedule(Component):
    """A number as a function of a count."""

    def __call__(self, count: Any) -> Any:
        raise NotImplementedError


class Constant(Schedule):
    """Always the same."""

    value: float

    def __call__(self, count: Any) -> Any:
        return self.value


class Linear(Schedule):
    """From ``start`` to ``end`` over ``steps`` counts, then ``end``."""

    start: float
    end: float
    steps: float

    def __call__(self, count: Any) -> Any:
        if isinstance(count, (int, float)):  # asked for at every step of an actor: no arrays
            return self.start + (self.end - self.start) * min(max(count / max(self.steps, 1.0), 0.0), 1.0)
        return maths.linear(count, self.start, self.end, self.steps)


class Exponential(Schedule):
    """start · rate^(count / steps), never past ``end``."""

    start: float
    rate: float
    steps: float
    end: float = 0.0

    def __post_init__(self) -> None:
        if min(self.start, self.rate, self.steps) <= 0:
            raise ConfigError(
                f"start={self.start}, rate={self.rate}, steps={self.steps}; an exponential needs all three above 0."
            )

    def __call__(self, count: Any) -> Any:
        return maths.exponential(count, self.start, self.rate, self.steps, self.end)


class Cosine(Schedule):
    """From ``start`` to ``end`` over ``steps`` counts along half a cosine, then ``end``."""

    start: float
    end: float
    steps: float

    def __call__(self, count: Any) -> Any:
        return maths.cosine(count, self.start, self.end, self.steps)


class Piecewise(Schedule):
    """values[i] from boundaries[i − 1] on: one value more than there are boundaries."""

    boundaries: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        maths.piecewise(0, self.boundaries, self.values)  # refuses what does not fit now, not in the middle of a run

    def __call__(self, count: Any) -> Any:
        return maths.piecewise(count, self.boundaries, self.values)


_BY_NAME: dict[str, tuple[type[Schedule], str]] = {
    "constant": (Constant, "value"),
    "linear": (Linear, "start:end:steps"),
    "exponential": (Exponential, "start:rate:steps[:end]"),
    "cosine": (Cosine, "start:end:steps"),
}


def as_schedule(value: float | str | Schedule) -> Schedule:
    """A number as a constant, ``"linear:1e-3:0:100000"`` as what it says, a schedule as it is."""
    if isinstance(value, Schedule):
        return value
    if isinstance(value, (int, float)):
        return Constant(float(value))
    kind, *words = str(value).split(":")
    if kind not in _BY_NAME:
        raise UnknownNameError("schedule", kind, _BY_NAME)
    schedule, form = _BY_NAME[kind]
    try:
        return schedule(*(float(word) for word in words))
    except (TypeError, ValueError):
        raise ConfigError(f"the schedule {value!r} arrived; it must read {kind}:{form}, numbers all.") from None
