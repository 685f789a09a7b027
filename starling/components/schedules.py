"""Schedules: numbers that depend on how far a run has come.

They run over the run's progress, from 0 at its start to 1 at its end, which the cadence of a plan counts: never over a
number of steps or updates, which differ from one formation to another. A progress that is a Python number gives a
Python number; an array inside compiled code gives a float32 array.
"""

from __future__ import annotations

from typing import Any

from starling.components.base import Component
from starling.core.errors import ConfigError, UnknownNameError
from starling.maths import schedules as maths

__all__ = ["Constant", "Cosine", "Exponential", "LinearSchedule", "Piecewise", "Schedule", "annealed", "as_schedule"]


class Schedule(Component):
    """A number as a function of the progress."""

    def __call__(self, progress: Any) -> Any:
        raise NotImplementedError


class Constant(Schedule):
    """Always the same."""

    value: float

    def __call__(self, progress: Any) -> Any:
        return self.value


class LinearSchedule(Schedule):
    """From ``start`` to ``end`` over the first share ``over`` of the run, then ``end``."""

    start: float
    end: float
    over: float = 1.0

    def __post_init__(self) -> None:
        _check_share(self.over)

    def __call__(self, progress: Any) -> Any:
        if isinstance(progress, (int, float)):  # asked for at every step of an actor: no arrays
            return self.start + (self.end - self.start) * min(max(progress / max(self.over, 1e-9), 0.0), 1.0)
        return maths.linear(progress, self.start, self.end, self.over)


def annealed(rate: float, anneal: bool) -> LinearSchedule:
    """A rate that falls to 0 over the run, or stays."""
    return LinearSchedule(rate, 0.0 if anneal else rate)


class Exponential(Schedule):
    """start · rate^(progress / over), never past ``end``."""

    start: float
    rate: float
    over: float = 1.0
    end: float = 0.0

    def __post_init__(self) -> None:
        if min(self.start, self.rate, self.over) <= 0:
            raise ConfigError(
                f"start={self.start}, rate={self.rate}, over={self.over}; an exponential needs all three above 0."
            )
        _check_share(self.over)

    def __call__(self, progress: Any) -> Any:
        return maths.exponential(progress, self.start, self.rate, self.over, self.end)


class Cosine(Schedule):
    """From ``start`` to ``end`` over the first share ``over`` of the run along half a cosine, then ``end``."""

    start: float
    end: float
    over: float = 1.0

    def __post_init__(self) -> None:
        _check_share(self.over)

    def __call__(self, progress: Any) -> Any:
        return maths.cosine(progress, self.start, self.end, self.over)


class Piecewise(Schedule):
    """values[i] from boundaries[i − 1] on: one value more than there are boundaries."""

    boundaries: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        maths.piecewise(0, self.boundaries, self.values)  # refuses what does not fit now, not in the middle of a run

    def __call__(self, progress: Any) -> Any:
        return maths.piecewise(progress, self.boundaries, self.values)


def _check_share(over: float) -> None:
    if not 0 <= over <= 1:
        raise ConfigError(f"over={over}; it is a share of the run, from 0 to 1, and no number of steps.")


_BY_NAME: dict[str, tuple[type[Schedule], str]] = {
    "constant": (Constant, "value"),
    "linear": (LinearSchedule, "start:end[:over]"),
    "exponential": (Exponential, "start:rate[:over[:end]]"),
    "cosine": (Cosine, "start:end[:over]"),
}


def as_schedule(value: float | str | Schedule) -> Schedule:
    """A number as a constant, ``"linear:1e-3:0"`` as what it says, a schedule as it is."""
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
