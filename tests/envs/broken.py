"""Deliberately broken environments: a good one with one fault each."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class Good(gym.Env):
    """A short random walk that both terminates and is truncated; ``fault`` names what it does wrong."""

    def __init__(self, fault: str = "", at: int = 3) -> None:
        self.fault, self.at, self.steps = fault, at, 0
        self.observation_space = gym.spaces.Box(-100, 100, (2,), np.float32)
        self.action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
        self.buffer = np.zeros(2, np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        self.state = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        if self.fault == "reset raises":
            raise RuntimeError("no ground to stand on")
        if self.fault == "reset without info":
            return self.state.copy()
        if self.fault == "nan at reset":
            return np.full(2, np.nan, np.float32), {}
        return self.observe(), {}

    def observe(self) -> Any:
        if self.fault == "buffer reused":
            self.buffer[:] = self.state
            return self.buffer
        return self.state.copy()

    def step(self, action: np.ndarray) -> Any:
        self.steps += 1
        self.state = (self.state + action * self.np_random.uniform(0.5, 1.0)).astype(np.float32)
        obs, reward, info = self.observe(), float(self.state.sum()), {}
        terminated, truncated = bool(self.state[0] > 2), self.steps >= 30
        if self.steps == self.at:
            obs, reward, info = self.go_wrong(obs, reward, info)
        if self.fault == "never ends":
            terminated = truncated = False
        if self.fault == "limit as termination":
            terminated, truncated = self.steps >= 10, False
        if self.fault == "flags are numbers":
            return obs, reward, int(terminated), int(truncated), info
        if self.fault == "four results":
            return obs, reward, terminated, info
        return obs, reward, terminated, truncated, info

    def go_wrong(self, obs: Any, reward: Any, info: Any) -> tuple[Any, Any, Any]:
        match self.fault:
            case "nan observation":
                obs[1] = np.nan
            case "infinite observation":
                obs[0] = np.inf
            case "float64 observation":
                obs = obs.astype(np.float64)
            case "integer observation":
                obs = obs.astype(np.int64)
            case "wrong shape":
                obs = np.zeros(3, np.float32)
            case "scalar observation":
                obs = np.float32(0)
            case "text observation":
                obs = "over there"
            case "out of bounds":
                obs = np.full(2, 101, np.float32)
            case "nan reward":
                reward = float("nan")
            case "infinite reward":
                reward = -np.inf
            case "reward is none":
                reward = None
            case "reward is a list":
                reward = [1.0]
            case "reward is text":
                reward = "high"
            case "info is a list":
                info = []
            case "step raises":
                raise ZeroDivisionError("the wheel came off")
            case "not deterministic":
                obs[0] = np.random.default_rng().random()
        return obs, reward, info


class Unseeded(Good):
    def reset(self) -> Any:  # type: ignore[override]
        return super().reset(seed=None)
