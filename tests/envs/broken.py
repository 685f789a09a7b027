"""Deliberately broken environments: a good one with one fault each."""

from __future__ import annotations

import ctypes
from decimal import Decimal
from typing import Any

import gymnasium as gym
import numpy as np

FLAGS = {  # terminated and truncated
    "several ends": (np.array([False, True]), False),
    "end is text": ("no", False),
    "end is none": (None, False),
    "cut is none": (False, None),
}
RESULTS = {
    "four results": lambda obs: (obs, 1.0, False, {}),
    "no tuple": lambda obs: obs,
    "nothing returned": lambda obs: None,
}


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
        if self.fault == "nothing at reset":
            return None
        if self.fault == "reset crashes":
            ctypes.string_at(0)
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
        if self.steps == self.at and self.fault in FLAGS:
            terminated, truncated = FLAGS[self.fault]
        if self.steps == self.at and self.fault in RESULTS:
            return RESULTS[self.fault](obs)
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
            case "reward is huge":
                reward = 10**400
            case "reward cannot be shown":
                reward = 10**10_000
            case "reward is decimal":
                reward = Decimal("1.5")
            case "several rewards":
                reward = np.array([1.0, 2.0])
            case "info is a list":
                info = []
            case "ragged observation":
                obs = [[1.0], [2.0, 3.0]]
            case "observation is none":
                obs = None
            case "step raises":
                raise ZeroDivisionError("the wheel came off")
            case "step crashes":
                ctypes.string_at(0)
            case "not deterministic":
                obs[0] = np.random.default_rng().random()
        return obs, reward, info


class Unseeded(Good):
    def reset(self) -> Any:  # type: ignore[override]
        return super().reset(seed=None)
