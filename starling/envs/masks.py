"""Action masks: which actions are legal, told in ``info`` or as an entry of a Dict observation."""

from __future__ import annotations

import numpy as np

from starling.core.spaces import Bool, Dict, Space
from starling.core.trees import Tree
from starling.envs.promises import Broken
from starling.envs.spaces import ACTION_MASK

__all__ = ["NO_CHOICE", "has_mask", "rows_without_choice"]

NO_CHOICE = Broken(
    "the action mask allows no action",
    "While an episode goes on at least one action is legal.",
    "Allow one that does nothing, or end the episode in the step before.",
)


def has_mask(observation: Space) -> bool:
    """Whether observations of this space come with a mask."""
    return isinstance(observation, Dict) and isinstance(observation.spaces.get(ACTION_MASK), Bool)


def rows_without_choice(obs: Tree) -> list[int]:
    """The rows of observations [B, …] whose mask allows nothing."""
    mask: np.ndarray = obs[ACTION_MASK]
    some = mask.reshape(len(mask), -1).any(axis=1)
    # A search of bytes costs less than half of all().
    return [] if some.tobytes().find(0) < 0 else np.flatnonzero(~some).tolist()
