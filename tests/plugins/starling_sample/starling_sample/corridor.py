"""A corridor with a door at its right end."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

__all__ = ["Corridor"]


class Corridor(gym.Env[np.ndarray, int]):
    """Walk to the door: a step to the right is action 1, to the left 0. ``sample_corridor:12`` has 12 cells."""

    def __init__(self, cells: str = "6", patience: int = 4) -> None:
        self.cells, self.limit, self.at, self.steps = int(cells), patience * int(cells), 0, 0
        self.observation_space = gym.spaces.Box(0, 1, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.at, self.steps = int(self.np_random.integers(self.cells // 2)), 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps += 1
        self.at = max(0, self.at + (1 if action == 1 else -1))
        there = self.at == self.cells - 1
        return self._seen(), 1.0 if there else -0.02, there, self.steps >= self.limit, {}

    def _seen(self) -> np.ndarray:
        return np.array([self.at / (self.cells - 1), self.steps / self.limit], np.float32)
