"""An environment that keeps a processor busy for 200 µs a step. Registers ``Busy-v1``."""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
from gymnasium.envs.classic_control import PendulumEnv

SECONDS = 200e-6


class Busy(gym.Wrapper):  # type: ignore[type-arg]
    """Pendulum, with work beside it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(PendulumEnv(**options))

    def step(self, action: Any) -> Any:
        until = time.perf_counter() + SECONDS
        result = self.env.step(action)
        while time.perf_counter() < until:
            pass
        return result


gym.register("Busy-v1", Busy, max_episode_steps=200)
