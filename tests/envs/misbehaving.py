"""Environments with one fault each, registered as ``tests.envs.misbehaving:FAULT-v0`` for the command line."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from .broken import FLAGS, RESULTS, Good
from .pooled import Seeded

EMPTY = {
    "an empty box": gym.spaces.Box(-1, 1, (0,), np.float32),
    "an empty dict": gym.spaces.Dict({}),
    "an empty tuple": gym.spaces.Tuple(()),
    "nothing in a dict": gym.spaces.Dict({"place": gym.spaces.Box(-1, 1, (3, 0), np.float32)}),
}


class Box:
    """A space of another library."""

    __module__ = "gym.spaces.box"

    def __repr__(self) -> str:
        return "Box(2,)"


class Misdeclared(Good):
    """Cannot be made, or declares what is no space."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        if fault == "constructor raises":
            raise RuntimeError("no road to drive on")
        if fault == "constructor mixes types":
            raise TypeError("unsupported operand")
        if fault == "no observation space":
            del self.observation_space
        if fault == "no action space":
            del self.action_space
        if fault == "an array as space":
            self.observation_space = np.zeros(2)
        if fault == "a number as action space":
            self.action_space = 2
        if fault == "a space of gym":
            self.observation_space = Box()
        if fault == "an empty action space":
            self.action_space = EMPTY["an empty box"]
        if fault in EMPTY:
            self.observation_space = EMPTY[fault]


class Stuck(Good):
    """Says which of three actions are legal: one, or none from the third step on, or none ``at_the_end`` alone."""

    def __init__(self, at_the_end: bool = False, inside: bool = False) -> None:
        super().__init__()
        self.action_space = gym.spaces.Discrete(3)
        self.at_the_end, self.inside, self.over = at_the_end, inside, False
        if inside:
            mask = gym.spaces.MultiBinary(3)
            self.observation_space = gym.spaces.Dict({"place": self.observation_space, "action_mask": mask})

    def told(self, obs: Any) -> tuple[Any, dict[str, Any]]:
        stuck = self.over if self.at_the_end else self.steps >= 3
        mask = {"action_mask": np.array([not stuck, 0, 0], np.int8)}
        return ({"place": obs, **mask}, {}) if self.inside else (obs, mask)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        self.over = False
        return self.told(super().reset(seed=seed)[0])

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, _ = super().step(
            -np.ones(1, np.float32)
        )  # away from where episodes end early
        self.over = terminated or truncated
        obs, info = self.told(obs)
        return obs, reward, terminated, truncated, info


MISDECLARED = (
    "constructor raises",
    "constructor mixes types",
    "no observation space",
    "no action space",
    "an array as space",
    "a number as action space",
    "a space of gym",
    "an empty action space",
    *EMPTY,
)
BROKEN = (
    *FLAGS,
    *RESULTS,
    "reset without info",
    "reward is huge",
    "reward is none",
    "reward is text",
    "several rewards",
    "wrong shape",
    "float64 observation",
    "out of bounds",
    "step raises",
)


def id_of(fault: str) -> str:
    return f"{__name__}:{fault.replace(' ', '-')}-v0"


for cls, faults in ((Misdeclared, MISDECLARED), (Good, BROKEN)):
    for fault in faults:
        gym.register(id_of(fault).partition(":")[2], cls, kwargs={"fault": fault})
gym.register("stuck-v0", Stuck)
gym.register("seeded-v0", Seeded)
