"""Greedy evaluation: how good the policy is when it does not explore."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from starling.envs import Envs
from starling.roles.policy import Policy

__all__ = ["Evaluation", "evaluate"]


@dataclass(frozen=True)
class Evaluation:
    """Returns and lengths of greedy episodes."""

    returns: list[float]
    lengths: list[int]

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        return float(np.std(self.returns))


def evaluate(
    policy: Policy, envs: Envs, episodes: int, report: Callable[[int], None] = lambda done: None
) -> Evaluation:
    """Play ``episodes`` greedy episodes.

    Each environment plays its own share from its beginning to its end: taking whichever finish first would favour
    short episodes.
    """
    share = [episodes // envs.count + (i < episodes % envs.count) for i in range(envs.count)]
    found: list[tuple[float, int]] = []
    obs = envs.reset()
    while len(found) < episodes:
        step = envs.step(policy.algorithm.to_env(policy.greedy(obs)))
        for episode in step.episodes:
            if share[episode.env]:
                share[episode.env] -= 1
                found.append((episode.ret, episode.length))
                report(len(found))
        obs = step.obs
    return Evaluation([ret for ret, _ in found], [length for _, length in found])
