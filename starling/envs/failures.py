"""What went wrong in an environment, told with everything needed to see it again."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from starling.core.errors import CheckpointError
from starling.envs.observations import Codec, Unfit

__all__ = ["LARGEST", "Place", "describe_misfit", "first_misfit", "require_count"]

LARGEST = float(np.finfo(np.float32).max)  # rewards are carried as float32


class Place(NamedTuple):
    """Where in which episode of which environment."""

    name: str
    env: int
    seed: int
    step: int

    def __str__(self) -> str:
        return f"{self.name}, environment {self.env}, episode seed {self.seed}, step {self.step} of the episode"


def describe_misfit(place: Place, method: str, result: Any, error: Exception) -> str:
    """Why the ``result`` of reset() or step() cannot be used."""
    expected = 2 if method == "reset" else 5
    names = "(obs, info)" if method == "reset" else "(obs, reward, terminated, truncated, info)"
    if not isinstance(result, tuple) or len(result) != expected:
        found = f"a tuple of {len(result)}" if isinstance(result, tuple) else type(result).__name__
        return f"{place}: {method}() returned {found}, {names} was expected."
    if not isinstance(result[-1], dict):
        return f"{place}: {method}() returned {type(result[-1]).__name__} for info, a dict was expected."
    if isinstance(error, KeyError):
        return f"{place}: info has no {error}, which the first reset() delivered; deliver it every time."
    what = f"{method}() returned what its space forbids" if isinstance(error, Unfit) else f"{method}() cannot be read"
    return f"{place}: {what}: {error}."


def first_misfit(codec: Codec, observations: list[Any], rewards: list[Any]) -> tuple[int, Exception] | None:
    """The first environment whose observation or reward does not fit, found by encoding one at a time; and why."""
    for i, (observation, reward) in enumerate(zip(observations, rewards)):
        try:
            codec.stack([observation])
            if np.ndim(reward) or not math.isfinite(reward) or abs(reward) > LARGEST:
                raise Unfit(f"the reward {reward!r:.60} arrived, one finite number was expected")
        except (ValueError, TypeError) as reason:
            return i, reason
    return None


def require_count(name: str, saved: int, count: int) -> None:
    """Refuse a saved state of another number of environments."""
    if saved != count:
        raise CheckpointError(
            f"{name}: the saved state holds {saved} environments and {count} were asked for; resume with {saved}."
        )
