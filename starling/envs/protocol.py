"""The environment protocol: B environments that step together.

    envs = make("CartPole-v1", count=8, seed=0)
    obs = envs.reset()                                     # [B, …]
    while training:
        action = policy(obs)                               # [B, …]
        step = envs.step(action)
        keep(obs, action, step.reward, step.terminated, step.truncated, step.final_obs, step.valid)
        obs = step.obs
    envs.close()

The successor of a transition is ``step.obs``, except in the rows where an episode ended: there ``step.obs`` already
belongs to the next episode, and ``step.final_obs`` holds the true successor. Bootstrap from it on truncation, never
on termination. Rows whose ``valid`` is False are no transitions and must not be learned from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from starling.core.spaces import Space
from starling.core.trees import Tree

__all__ = ["Envs", "Episode", "Step"]


class Episode(NamedTuple):
    """A finished episode."""

    env: int  # which of the B environments
    ret: float  # sum of its rewards
    length: int  # its steps


@dataclass(slots=True)
class Step:
    """What one step of B environments gave.

    Every array is safe to keep: it is never written to again. The three arrays of truth values may be shared between
    steps, and are then read-only.
    """

    obs: Tree  # [B, …] what the policy acts on next: the reset observation where an episode ended
    reward: np.ndarray  # [B] float32
    terminated: np.ndarray  # [B] bool: the task ended; nothing comes after
    truncated: np.ndarray  # [B] bool: cut short; the value of final_obs still counts
    final_obs: Tree | None  # [B, …] the true successors; meaningful where an episode ended; None where none did
    valid: np.ndarray  # [B] bool: False where the row only delivers a reset observation
    episodes: list[Episode] = field(default_factory=list)  # those that finished in this step


class Envs(ABC):
    """B environments that step together; see the loop above."""

    count: int  # B
    name: str
    observation_space: Space  # of one environment, without ranks
    action_space: Space
    exact_resume: bool  # whether restore() puts, or has put, the environments back exactly

    @abstractmethod
    def reset(self) -> Tree:
        """Begin a new episode in every environment; return the observations [B, …]."""

    @abstractmethod
    def step(self, action: Any) -> Step:
        """Act in every environment, with the rows of ``action`` [B, …]."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Where the environments are: a tree of arrays, numbers and strings."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> Tree:
        """Go back to ``state`` and return the current observations [B, …].

        Where an environment cannot be put back exactly it begins a new episode, and ``exact_resume`` turns False.
        """

    @abstractmethod
    def close(self) -> None:
        """Free what the environments hold."""

    def __enter__(self) -> Envs:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
