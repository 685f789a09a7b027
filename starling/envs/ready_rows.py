"""Asynchronous environments behind the protocol of those that step together: whoever waits for all finds a use for few.

envs = ReadyRows(make("Slow-v0", count=16, seed=0, workers=4, asynchronous=True))
obs = envs.reset()
while training:
    action[envs.ready] = policy(obs[envs.ready])           # the other rows are under way
    step = envs.step(action)                               # of the rows that are ready now
    keep(obs, action, step)                                # what each row was last seen as, did, and came to
    obs = step.obs
envs.close()
"""

from __future__ import annotations

from typing import Any

import numpy as np

from starling.core.trees import Tree, map_leaves
from starling.envs.protocol import AsyncEnvs, Envs, Step
from starling.envs.rows import with_rows

__all__ = ["ReadyRows"]


class ReadyRows(Envs):
    """A step acts in the rows that are ``ready``, and waits for as many to be ready again.

    The others are not valid in it: they have made no step, and have the observation that they had.
    """

    exact_resume = False
    ready: np.ndarray  # the numbers of the rows in which the next step acts, ascending

    def __init__(self, envs: AsyncEnvs) -> None:
        self._envs = envs
        self.count, self.name = envs.count, envs.name
        self.observation_space, self.action_space = envs.observation_space, envs.action_space
        self.reward_space, self.extras_space = envs.reward_space, envs.extras_space
        flags = {name: np.zeros(self.count, np.bool_) for name in ("terminated", "truncated", "valid")}
        self._nothing = {  # what a step gives of rows under way
            **flags,
            "reward": self.reward_space.ranked(batch=True).zeros((self.count,)),
            "extras": self.extras_space.ranked(batch=True).zeros((self.count,)),
        }

    def reset(self) -> Tree:
        self._envs.reset()
        return self._begun()

    def step(self, action: Any) -> Step:
        self._envs.send(self.ready, map_leaves(lambda leaf: leaf[self.ready], action))
        return self._receive()

    def _begun(self) -> Tree:
        self._obs = self.observation_space.ranked(batch=True).zeros((self.count,))
        return self._receive().obs

    def _receive(self) -> Step:
        self.ready, few = self._envs.recv()
        self._obs = with_rows(self._obs, self.ready, few.obs)
        final = None if few.final_obs is None else with_rows(self._obs, self.ready, few.final_obs)
        facts = with_rows(self._nothing, self.ready, {name: getattr(few, name) for name in self._nothing})
        return Step(obs=self._obs, final_obs=final, episodes=few.episodes, **facts)

    def state(self) -> dict[str, Any]:
        return self._envs.state()

    def restore(self, state: dict[str, Any]) -> Tree:
        """Begin episodes that were not seen before."""
        self._envs.restore(state)
        return self._begun()

    def close(self) -> None:
        self._envs.close()
