"""Small environments, registered as ``tests.experiments.toys:NAME-v0``."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import Any

import gymnasium as gym
import numpy as np


class Toy(gym.Env):
    """Episodes of ten steps; the observation is (steps so far, a seeded number)."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-100, 100, (2,), np.float32)
        self.action_space: gym.Space = gym.spaces.Discrete(2)
        self.length, self.t, self.number = 10, 0, 0.0

    def observe(self) -> Any:
        return np.array([self.t, self.number], np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        self.t, self.number = 0, float(self.np_random.random())
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return self.observe(), self.reward(action), self.t >= self.length, False, {}

    def reward(self, action: Any) -> Any:
        return 1.0


class Bandit(Toy):
    """One step; the first action pays 1, the other nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.length = 1

    def reward(self, action: Any) -> Any:
        return float(action == 0)


class Slope(Toy):
    """One continuous action; the best is where the observation's second number says, in ten single choices."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = gym.spaces.Box(-2, 2, (1,), np.float32)

    def reward(self, action: Any) -> Any:
        return -float((action[0] - self.number) ** 2)


class Cut(Toy):
    """One state and a reward of 1, cut short after five steps, never over."""

    def observe(self) -> Any:
        return np.ones(2, np.float32)

    def step(self, action: Any) -> Any:
        self.t += 1
        return self.observe(), 1.0, False, self.t >= 5, {}


class Over(Cut):
    """The same, but the task is over after five steps."""

    def step(self, action: Any) -> Any:
        self.t += 1
        return self.observe(), 1.0, self.t >= 5, False, {}


class Lengths(Toy):
    """Episode e of an environment lasts 1, 20, 1, 20, … steps; which one comes first depends on the seed."""

    def __init__(self) -> None:
        super().__init__()
        self.odd = False

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        result = super().reset(seed=seed)
        self.odd = not self.odd
        self.length = 1 if self.odd else 20
        return result


class Chance(Toy):
    """Not determined by its seed."""

    def observe(self) -> Any:
        return np.array([self.t, random.SystemRandom().random()], np.float32)


class Faulty(Toy):
    """Goes wrong at step ``at`` of an episode whose number is ``episode`` or later."""

    def __init__(self, fault: str = "", at: int = 4, episode: int = 100) -> None:
        super().__init__()
        self.fault, self.at, self.episode, self.episodes = fault, at, episode, 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        self.episodes += 1
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        obs, reward, over, cut, info = super().step(action)
        if self.t == self.at and self.episodes >= self.episode:
            if self.fault == "raises":
                raise ZeroDivisionError("the wheel came off")
            obs = {"nan": np.full(2, np.nan, np.float32), "shape": np.zeros(3, np.float32), "dtype": "north"}[
                self.fault
            ]
        return obs, reward, over, cut, info


class Hanging(Toy):
    """After some episodes, steps do not end."""

    def step(self, action: Any) -> Any:
        self.episodes = getattr(self, "episodes", 0) + (self.t == 0)
        while self.episodes > 30:
            time.sleep(0.05)
        return super().step(action)


class Crashing(Toy):
    """Takes its process with it in the fourth step of every episode."""

    def step(self, action: Any) -> Any:
        if self.t == 3:
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().step(action)


class Helped(Toy):
    """Has a helper: a process that it has forked, and that holds everything open which it has itself."""

    def __init__(self) -> None:
        super().__init__()
        self.helper = os.fork()
        if self.helper == 0:
            while True:
                time.sleep(1)
        with open(os.environ["HELPERS"], "a", encoding="utf-8") as file:
            file.write(f"{self.helper}\n")

    def close(self) -> None:
        os.kill(self.helper, signal.SIGKILL)
        os.waitpid(self.helper, 0)


for cls in (Toy, Bandit, Slope, Cut, Over, Lengths, Chance, Faulty, Hanging, Crashing, Helped):
    gym.register(f"{cls.__name__}-v0", cls)
for fault in ("raises", "nan", "shape", "dtype"):
    gym.register(f"Faulty-{fault}-v0", Faulty, kwargs={"fault": fault})
