"""An environment whose observations tell where it is, so that every transition can be verified alone."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class Counting(gym.Env):
    """Observes (environment, episode, step, last action); the reward is their sum with distinct weights.

    Episode e of environment i lasts 2 + (i + e) % 3 steps; even i + e terminate, odd ones are truncated.
    Actions are 3 … 7, so that the offset of the action space is seen too.
    """

    action_space = gym.spaces.Discrete(5, start=3)

    def __init__(self, index: int = 0, form: str = "vector") -> None:
        self.index, self.form, self.episode = index, form, -1
        place = gym.spaces.Box(-1, 1000, (4,), np.float32)
        self.observation_space = {
            "vector": place,
            "dict": gym.spaces.Dict({"place": place, "step": gym.spaces.Discrete(10)}),
            "tuple": gym.spaces.Tuple((place, gym.spaces.Box(0, 255, (2, 2), np.uint8))),
        }[form]

    def observe(self, action: int) -> Any:
        place = np.array([self.index, self.episode, self.steps, action], np.float32)
        if self.form == "dict":
            return {"place": place, "step": self.steps}
        if self.form == "tuple":
            return place, np.full((2, 2), self.steps, np.uint8)
        return place

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.episode += 1
        self.steps = 0
        return self.observe(-1), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        assert self.action_space.contains(action), action
        self.steps += 1
        over = self.steps == 2 + (self.index + self.episode) % 3
        terminates = (self.index + self.episode) % 2 == 0
        reward = 1000 * self.index + 10 * self.episode + self.steps
        return self.observe(int(action) - 3), reward, over and terminates, over and not terminates, {}


def place_of(obs: Any) -> np.ndarray:
    """The rows (environment, episode, step, action) of a batch, after verifying that its parts agree."""
    if isinstance(obs, dict):
        np.testing.assert_array_equal(obs["step"], obs["place"][:, 2])
        return obs["place"]
    if isinstance(obs, tuple):
        np.testing.assert_array_equal(obs[1], np.broadcast_to(obs[0][:, 2, None, None], obs[1].shape))
        return obs[0]
    return obs
