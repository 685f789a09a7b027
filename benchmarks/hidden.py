"""CartPole without its velocities: where memory is needed. Registers ``HiddenCartPole-v1``, so that

starling train --algo ppo --env benchmarks.hidden:HiddenCartPole-v1 --ppo.memory lstm
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv


class HiddenCartPole(gym.ObservationWrapper):  # type: ignore[type-arg]
    """Shows the cart's place and the pole's angle alone."""

    def __init__(self, **options: Any) -> None:
        super().__init__(CartPoleEnv(**options))
        high = self.env.observation_space.high[[0, 2]]  # type: ignore[attr-defined]
        self.observation_space = gym.spaces.Box(-high, high, dtype=np.float32)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return observation[[0, 2]]


gym.register("HiddenCartPole-v1", HiddenCartPole, max_episode_steps=500)
