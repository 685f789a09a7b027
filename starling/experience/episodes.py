"""Whole episodes, each played by one policy from its beginning to its end, learned from once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from starling.core.errors import DataError
from starling.core.spaces import Dict
from starling.core.trees import Tree
from starling.data.adders.columns import column_signature, put_steps
from starling.envs.protocol import Step
from starling.experience.on_policy import OnPolicy, facts_of
from starling.experience.plan import Accumulator, Acted, Perturbable, StepSpaces, equal_share

__all__ = ["Episodes"]


@dataclass(frozen=True, kw_only=True)
class Episodes(OnPolicy):
    """On-policy: a batch is ``episodes`` whole episodes, as many of each environment."""

    episodes: int  # in a batch
    length: int  # steps of the longest

    def __post_init__(self) -> None:
        equal_share("episodes", self.episodes, self.envs, f"envs={self.envs}")

    @property
    def batch_rows(self) -> int:
        return self.episodes * self.length

    def batch_space(self, spaces: StepSpaces) -> Dict:
        """[T, B]: time and episodes; ``mask`` is 0 behind an episode's end."""
        return column_signature(spaces.obs, spaces.action, **spaces.extras.spaces)

    def shared(self, learners: int) -> Episodes:
        envs = equal_share("envs", self.envs, learners, f"{learners} learners")
        return replace(self, envs=envs, episodes=self.episodes // learners)

    def accumulator(self, spaces: StepSpaces, envs: int, chunk: int, priorities: Any = None) -> EpisodeAccumulator:
        return EpisodeAccumulator(self, self.batch_space(spaces), envs)


class EpisodeAccumulator(Accumulator):
    """Each environment plays its share of episodes from a reset on: taking whichever end first would favour short
    ones. One that is done goes on, unseen, until the last is."""

    restarts: ClassVar[bool] = True

    def __init__(self, plan: Episodes, space: Dict, envs: int) -> None:
        self._length, self._space, self._envs = plan.length, space, envs
        self._each = plan.episodes // plan.envs
        self._begin()

    def _begin(self) -> None:
        self._data = self.blank()
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
        put_steps(self._data, at, rows * self._each + self._done[rows], facts_of(obs, acted, step), rows)
        self._t[rows] += 1
        over = rows[(step.terminated | step.truncated)[rows]]
        self._done[over] += 1
        self._t[over] = 0

    def take(self) -> Tree:
        data = self._data
        self._begin()
        return data

    def blank(self) -> dict[str, Tree]:
        return self._space.zeros((self._length, self._envs * self._each))
