"""What went wrong in an environment, told with everything needed to see it again."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from starling.core.errors import CheckpointError
from starling.core.trees import Tree, leaves
from starling.envs.observations import UNREADABLE, Codec
from starling.envs.promises import Broken, broken_flags, broken_form, broken_info, broken_reward

__all__ = ["NOTHING", "Place", "broken_step", "describe_misfit", "describe_reset", "require_count"]

NOTHING = object()  # a result that has not come yet


class Place(NamedTuple):
    """Where in which episode of which environment."""

    name: str
    env: int
    seed: int
    step: int

    def __str__(self) -> str:
        return f"{self.name}, environment {self.env}, episode seed {self.seed}, step {self.step} of the episode"


def broken_step(result: Any) -> Broken | None:
    """Why the parts of a step's ``result`` cannot be told apart; None where they can, or where none has come."""
    return None if result is NOTHING else broken_form("step", result) or broken_flags(*result[2:4])


def describe_reset(result: Any, error: Exception) -> str:
    """Why the ``result`` of a reset cannot be used, of which ``error`` came."""
    broken = broken_form("reset", result) or broken_info(result[1])
    return str(broken) if broken is not None else f"reset() returned what its space forbids: {error}."


def describe_misfit(codec: Codec, observations: list[Any], rewards: list[Any], action: Tree) -> tuple[int, str] | None:
    """The first environment whose observation or reward does not fit, and why; None where each alone does."""
    found = _first_misfit(codec, observations, rewards)
    if found is None or all(np.isfinite(leaf).all() for leaf in leaves(action)):
        return found
    return found[0], f"{found[1]} The actions that were sent are not finite either: look at the policy first."


def _first_misfit(codec: Codec, observations: list[Any], rewards: list[Any]) -> tuple[int, str] | None:
    for i, (observation, reward) in enumerate(zip(observations, rewards)):
        try:
            codec.stack([observation])
        except UNREADABLE as reason:
            return i, f"step() returned what its spaces forbid: {reason}."
        broken = broken_reward(reward)
        if broken is not None:
            return i, str(broken)
    return None


def require_count(name: str, saved: int, count: int) -> None:
    """Refuse a saved state of another number of environments."""
    if saved != count:
        raise CheckpointError(
            f"{name}: the saved state holds {saved} environments and {count} were asked for; resume with {saved}."
        )
