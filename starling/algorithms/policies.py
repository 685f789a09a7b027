"""What stochastic policies share: their noise, and how their actions reach the environment."""

from __future__ import annotations

from typing import Any

import numpy as np

from starling.core.spaces import Float, Leaf, Space

__all__ = ["clipped_to_bounds", "policy_noise", "scaled_to_bounds"]


def policy_noise(space: Space, rng: np.random.Generator, lead: tuple[int, ...]) -> np.ndarray:
    """Standard normal for continuous actions, uniform for the others."""
    assert isinstance(space, Leaf)
    shape = (*lead, *space.shape)
    continuous = isinstance(space, Float)
    return rng.standard_normal(shape, dtype=np.float32) if continuous else rng.random(shape, dtype=np.float32)


def clipped_to_bounds(space: Space, action: np.ndarray) -> np.ndarray:
    """A Gaussian's action kept inside the bounds."""
    return np.clip(action, space.low, space.high) if isinstance(space, Float) else action


def scaled_to_bounds(space: Float, action: Any) -> np.ndarray:
    """An action in [−1, 1] stretched to the bounds."""
    low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
    return low + (action + 1) * (0.5 * (high - low))
