"""What stochastic policies share: their noise, and how their actions reach the environment."""

from __future__ import annotations

from typing import Any

import numpy as np

from starling.core.errors import SpaceError
from starling.core.spaces import Float, Int, Leaf, Space

__all__ = ["clipped_to_bounds", "policy_noise", "require_flat", "scaled_to_bounds"]


def require_flat(algo: str, space: Space) -> None:
    """Refuse actions that are neither one choice nor a vector: policies draw no others."""
    if isinstance(space, Leaf) and len(space.shape) != 1 and not (isinstance(space, Int) and not space.shape):
        raise SpaceError(
            f"{algo} needs one choice or a vector of actions; the action space is {space} of shape {space.shape}. "
            "Wrap the environment so that its actions are a vector."
        )


def policy_noise(space: Space, rng: np.random.Generator, lead: tuple[int, ...]) -> np.ndarray:
    """Standard normal for continuous actions, uniform for the others."""
    assert isinstance(space, Leaf)
    shape = (*lead, *space.shape)
    continuous = isinstance(space, Float)
    return rng.standard_normal(shape, dtype=np.float32) if continuous else rng.random(shape, dtype=np.float32)


def clipped_to_bounds(space: Space, action: np.ndarray) -> np.ndarray:
    """A Gaussian's action kept inside the bounds, as rounded here; the environment's codec knows the true ones."""
    return np.clip(action, space.low, space.high) if isinstance(space, Float) else action


def scaled_to_bounds(space: Float, action: Any) -> np.ndarray:
    """An action in [−1, 1] stretched to the bounds, up to rounding; the environment's codec clips what is outside."""
    low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
    return low + (action + 1) * (0.5 * (high - low))
