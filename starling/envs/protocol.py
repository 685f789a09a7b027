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

Where some rows take longer than others, those that are ready need not wait for them:

    envs = make("Slow-v0", count=16, seed=0, workers=4, asynchronous=True)
    envs.reset()                                           # begins an episode in every row
    while training:
        rows, step = envs.recv()                           # the envs.batch rows that were ready first
        keep(rows, step)                                   # what each row's last action led to; see step.valid
        envs.send(rows, policy(step.obs))                  # [batch, …]
    envs.close()

Which rows come together, and after how many steps of the others, depends on timing: no two runs are the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Self, final

import numpy as np

from starling.core.spaces import Dict, Float, Space
from starling.core.trees import Tree

__all__ = ["AsyncEnvs", "Environments", "Envs", "Episode", "Step"]


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
    reward: np.ndarray  # [B, *R] of reward_space: one float32 per row, R = (), in every environment so far
    terminated: np.ndarray  # [B] bool: the task ended; nothing comes after
    truncated: np.ndarray  # [B] bool: cut short; the value of final_obs still counts
    final_obs: Tree | None  # [B, …] the true successors; meaningful where an episode ended; None where none did
    valid: np.ndarray  # [B] bool: False where the row only delivers a reset observation
    episodes: list[Episode] = field(default_factory=list)  # those that finished in this step
    extras: dict[str, Tree] = field(
        default_factory=dict
    )  # [B, …] what was asked for of the step's info; of extras_space


class Environments(ABC):
    """What B environments are, however they are stepped."""

    count: int  # B
    name: str
    observation_space: Space  # of one environment, without ranks, as are the others
    action_space: Space
    reward_space: Space = Float()
    extras_space: Dict = Dict()
    exact_resume: bool  # whether restore() puts, or has put, the environments back exactly

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Where the environments are: a tree of arrays, numbers and strings."""

    @abstractmethod
    def close(self) -> None:
        """Free what the environments hold."""

    @final
    def __enter__(self) -> Self:
        return self

    @final
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class Envs(Environments):
    """B environments that step together; see the first loop above.

    An adapter, which ``make`` finds by name, is made with (task, count, seed, extras=…, **options); its
    ``asynchronous`` form, where it has one, with (task, count, batch, seed, extras=…, **options).
    """

    asynchronous: ClassVar[Callable[..., AsyncEnvs] | None] = None

    @abstractmethod
    def reset(self) -> Tree:
        """Begin a new episode in every environment; return the observations [B, …]."""

    @abstractmethod
    def step(self, action: Any) -> Step:
        """Act in every environment, with the rows of ``action`` [B, …]."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> Tree:
        """Go back to ``state`` and return the current observations [B, …].

        Where an environment cannot be put back exactly it begins a new episode, and ``exact_resume`` turns False.
        """


class AsyncEnvs(Environments):
    """B environments of which ``batch`` at a time are served; see the second loop above.

    Every row is either under way or held by the caller: ``reset`` puts all under way, ``recv`` hands out those that
    are ready, ``send`` puts them under way again. The caller may hold several batches at once.
    """

    batch: int  # rows that recv() returns and send() takes
    exact_resume = False  # what is under way when a run stops is not seen again

    @abstractmethod
    def reset(self) -> None:
        """Begin a new episode in every row; its first observation comes from recv(), in a row that is not valid."""

    @abstractmethod
    def recv(self) -> tuple[np.ndarray, Step]:
        """Wait for ``batch`` rows: their numbers [batch], ascending, and what their last actions led to [batch, …].

        ``Episode.env`` is the number of a row among all B.
        """

    @abstractmethod
    def send(self, rows: np.ndarray, action: Any) -> None:
        """Act in ``rows`` [batch], which recv() has handed out, with the rows of ``action`` [batch, …]."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Like reset(), with episodes that were not seen before ``state`` was taken."""
