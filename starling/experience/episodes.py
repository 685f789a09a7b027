"""Whole episodes, each played by one policy from its beginning to its end, learned from once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from starling.core.errors import ConfigError, DataError
from starling.core.spaces import Bool, Dict, Float
from starling.core.trees import Tree, map_leaves
from starling.envs.protocol import Step
from starling.envs.rows import put_rows
from starling.experience.cadence import EachBatch
from starling.experience.plan import Accumulator, Acted, Perturbable, Plan, StepSpaces, WholeFeed

__all__ = ["Episodes"]


@dataclass(frozen=True, kw_only=True)
class Episodes(Plan):
    """On-policy: a batch is ``episodes`` whole episodes, as many of each environment."""

    envs: int
    episodes: int  # in a batch
    length: int  # steps of the longest

    def __post_init__(self) -> None:
        if self.episodes % self.envs:
            raise ConfigError(
                f"episodes={self.episodes} cannot be shared equally by envs={self.envs}; use a multiple, such as "
                f"{self.envs * -(-self.episodes // self.envs)}."
            )

    @property
    def batch_rows(self) -> int:
        return self.episodes * self.length

    def batch_space(self, spaces: StepSpaces) -> Dict:
        """[T, B]: time and episodes; ``mask`` is 0 behind an episode's end."""
        numbers = dict.fromkeys(("reward", "mask"), Float())
        flags = dict.fromkeys(("terminated", "truncated"), Bool())
        step = {"obs": spaces.obs, "action": spaces.action, **numbers, **flags, **spaces.extras.spaces}
        return Dict(step).ranked(time=True, batch=True)

    def shared(self, learners: int) -> Episodes:
        if self.envs % learners:
            raise ConfigError(f"envs={self.envs} cannot be shared equally by {learners} learners; use a multiple.")
        return replace(self, envs=self.envs // learners, episodes=self.episodes // learners)

    def envs_per_actor(self, chunks: int) -> int:
        if self.envs % chunks:
            raise ConfigError(
                f"envs={self.envs} cannot be shared equally by the {chunks} chunks of a batch; use a multiple, such as "
                f"{chunks * -(-self.envs // chunks)}."
            )
        return self.envs // chunks

    def cadence(self, total: int, workers: int = 1) -> EachBatch:
        return EachBatch(total)

    def accumulator(self, spaces: StepSpaces, envs: int, chunk: int, priorities: Any = None) -> EpisodeAccumulator:
        return EpisodeAccumulator(self, self.batch_space(spaces), envs)

    def feed(self, spaces: StepSpaces, chunks: int, seed: int, index: int = 0) -> WholeFeed:
        return WholeFeed(chunks, _side_by_side)


class EpisodeAccumulator(Accumulator):
    """Each environment plays its share of episodes from a reset on: taking whichever end first would favour short
    ones. One that is done goes on, unseen, until the last is."""

    restarts: ClassVar[bool] = True

    def __init__(self, plan: Episodes, space: Dict, envs: int) -> None:
        self._length, self._space, self._envs = plan.length, space, envs
        self._each = plan.episodes // plan.envs
        self._begin()

    def _begin(self) -> None:
        self._data: dict[str, Any] = self._space.zeros((self._length, self._envs * self._each))
        self._done, self._t = np.zeros(self._envs, np.int64), np.zeros(self._envs, np.int64)

    def begin(self, policy: Perturbable, rng: np.random.Generator) -> None:
        self._begin()

    @property
    def full(self) -> bool:
        return bool((self._done >= self._each).all())

    def add(self, obs: Tree, acted: Acted, step: Step, bootstrap: np.ndarray | None) -> None:
        rows = np.flatnonzero((self._done < self._each) & step.valid)
        at = self._t[rows]
        if len(at) and at.max() >= self._length:
            raise DataError(
                f"an episode is longer than episode_length={self._length}; raise it, or let the environment end sooner."
            )
        columns = rows * self._each + self._done[rows]
        facts = {"obs": obs, "action": acted.action, "reward": step.reward, "mask": np.ones(self._envs, np.float32)}
        facts |= {"terminated": step.terminated, "truncated": step.truncated, **acted.extras}
        for name, kept in self._data.items():
            put_rows(kept, (at, columns), facts[name], rows)
        self._t[rows] += 1
        over = rows[(step.terminated | step.truncated)[rows]]
        self._done[over] += 1
        self._t[over] = 0

    def take(self) -> Tree:
        data = self._data
        self._begin()
        return data

    def blank(self) -> Tree:
        return self._space.zeros((self._length, self._envs * self._each))


def _side_by_side(chunks: list[Tree]) -> Tree:
    return chunks[0] if len(chunks) == 1 else map_leaves(lambda *x: np.concatenate(x, axis=1), *chunks)
