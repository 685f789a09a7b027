"""An environment that computes for two milliseconds a step: ``peers.slow_env:Slow-v0``."""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import numpy as np

SECONDS = 0.002


class Slow(gym.Env):
    """Spins, as a simulator would; episodes of a hundred steps."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-1, 1, (4,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self._step = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._step = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> Any:
        until = time.process_time() + SECONDS
        while time.process_time() < until:
            pass
        self._step += 1
        return np.zeros(4, np.float32), float(action), self._step >= 100, False, {}


gym.register("Slow-v0", Slow)
