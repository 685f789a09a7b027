"""Discounted returns so far, of episodes that are under way."""

from __future__ import annotations

from typing import Any

import numpy as np

from starling.data.untrusted import Untrusted

__all__ = ["ReturnsSoFar"]


class ReturnsSoFar:
    """The discounted return so far of the episode that each environment plays."""

    def __init__(self, num_envs: int, gamma: float) -> None:
        self._gamma, self._running = gamma, np.zeros(num_envs, np.float32)

    def after(self, reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, valid: np.ndarray) -> np.ndarray:
        """With this vector step, [B]; as it was where no step was made."""
        found = np.where(valid, self._gamma * self._running + reward, self._running)
        self._running = np.where(terminated | truncated, np.float32(0), found)
        return found

    def state(self) -> Any:
        return self._running.copy()

    def restore(self, state: Any) -> None:
        """Continue from ``state()`` of as many environments."""
        size = self._running.size
        saved = Untrusted({"returns": state}, "the returns so far", f"there are {size} environments here")
        wide = getattr(state, "dtype", None) == np.float64  # as rewards are that came in sixty-four bits
        self._running = saved.array("returns", (size,), np.float64 if wide else np.float32).copy()
