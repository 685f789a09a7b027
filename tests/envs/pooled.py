"""Environments for workers: they can be imported, and do something only at the episode seed that they are told."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from .broken import Good
from .counting import Counting


class Seeded(Good):
    """Goes wrong in the episode with the seed ``wanted`` alone, so that a test decides which row does."""

    def __init__(self, fault: str, wanted: int, at: int = 3) -> None:
        super().__init__(fault, at)
        self.told, self.wanted = fault, wanted

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        self.fault = self.told if seed == self.wanted else ""
        return super().reset(seed=seed)


class Waiting(Good):
    """In the episode with the seed ``wanted``, every step waits until the file ``until`` is there."""

    def __init__(self, wanted: int, until: str) -> None:
        super().__init__()
        self.wanted, self.until, self.waits = wanted, Path(until), False

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        self.waits = seed == self.wanted
        return super().reset(seed=seed)

    def step(self, action: np.ndarray) -> Any:
        while self.waits and not self.until.exists():
            time.sleep(0.005)
        return super().step(action)


class Elsewhere(Good):
    """Differs, in the way that is asked for, in any process but ``home``."""

    def __init__(self, home: int, way: str) -> None:
        super().__init__()
        if os.getpid() == home:
            return
        if way == "raises":
            raise RuntimeError("no map here")
        if way == "exits":
            os._exit(7)
        self.action_space = gym.spaces.Box(-2, 2, (1,), np.float32)


class Repeating(Counting):
    """All its episodes are the first."""

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        self.episode = -1
        return super().reset(seed=seed)


class Telling(Repeating):
    """Masks its actions, and tells its step and the seed of its episode."""

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        self.seeded = seed
        return super().reset(seed=seed)[0], self.told()

    def step(self, action: int) -> Any:
        return *super().step(action)[:4], self.told()

    def told(self) -> dict[str, Any]:
        return {
            "action_mask": np.arange(5) <= self.steps,
            "at": np.array([self.steps, self.seeded]),
            "half": self.steps / 2,
        }


class CrashingOnce(Good):
    """Crashes at its third step, once in each process."""

    crashed = False

    def step(self, action: np.ndarray) -> Any:
        if self.steps == 2 and not CrashingOnce.crashed:
            CrashingOnce.crashed = True
            raise ZeroDivisionError("the wheel came off")
        return super().step(action)


def vector() -> gym.vector.VectorEnv:
    return gym.vector.SyncVectorEnv([Good, Good])
