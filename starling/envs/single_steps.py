"""The step of one gymnasium environment, as ``GymEnvs`` calls it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starling.envs.observations import Unfit
from starling.envs.promises import broken_flags

__all__ = ["has_ended", "step_keeping_result", "step_with_info"]

SingleStep = Callable[[Any], Any]


def has_ended(terminated: Any, truncated: Any) -> bool:
    """Whether an episode has ended; raises where the flags are no truth values."""
    if type(terminated) is bool and type(truncated) is bool:  # by far the most
        return terminated or truncated
    broken = broken_flags(terminated, truncated)
    if broken is not None:
        raise Unfit(str(broken))
    return bool(terminated or truncated)


def step_with_info(step: SingleStep) -> SingleStep:
    """``step``, with the pair of observation and info in the place of the observation."""

    def stepped(action: Any) -> Any:
        result = step(action)
        try:
            observation, reward, terminated, truncated, info = result
        except (TypeError, ValueError):
            return result  # refused by whoever reads it
        return (observation, info), reward, terminated, truncated, info

    return stepped


def step_keeping_result(step: SingleStep, results: list[Any]) -> SingleStep:
    """``step``, with its result appended to ``results`` too."""

    def stepped(action: Any) -> Any:
        result = step(action)
        results.append(result)
        return result

    return stepped
