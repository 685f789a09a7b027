"""Greedy evaluation: how good the policy is when it does not explore."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from starling.core.params import Params, with_scopes
from starling.envs import Envs
from starling.roles.policy import Policy, memory_where

__all__ = ["Evaluation", "evaluate"]

LONGEST = 50_000  # steps of an episode; an environment without a time limit may never end one


@dataclass(frozen=True)
class Evaluation:
    """Returns and lengths of greedy episodes."""

    returns: list[float]
    lengths: list[int]
    cut: int = 0  # those that did not end by themselves within the longest that is waited for

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        return float(np.std(self.returns))


def evaluate(
    policy: Policy,
    envs: Envs,
    episodes: int,
    report: Callable[[int], None] = lambda done: None,
    longest: int = LONGEST,
) -> Evaluation:
    """Play ``episodes`` greedy episodes; one that does not end within ``longest`` steps counts as it is by then.

    Each environment plays its own share from its beginning to its end: taking whichever finish first would favour
    short episodes.
    """
    share = [episodes // envs.count + (i < episodes % envs.count) for i in range(envs.count)]
    found: list[tuple[float, int]] = []
    returns, lengths = np.zeros(envs.count), np.zeros(envs.count, np.int64)  # of the running episodes
    cut = 0
    obs, memory, remembers = envs.reset(), policy.no_memory(envs.count), bool(policy.algorithm.memory.spaces)
    while len(found) < episodes:
        choice = policy.greedy(obs, memory)
        step = envs.step(policy.algorithm.to_env(np.asarray(choice.action)))
        returns += np.where(step.valid, step.reward, 0.0)
        lengths += step.valid
        ended = step.terminated | step.truncated | ~step.valid
        for episode in step.episodes:
            if share[episode.env]:
                share[episode.env] -= 1
                found.append((episode.ret, episode.length))
                report(len(found))
        for i in np.flatnonzero((lengths >= longest) & ~ended).tolist():
            while share[i]:  # the greedy policy goes on for ever here: its next episodes would as well
                share[i] -= 1
                found.append((float(returns[i]), int(lengths[i])))
                cut += 1
                report(len(found))
        returns[ended], lengths[ended] = 0.0, 0
        obs = step.obs
        if remembers:
            memory = memory_where(with_scopes(choice.memory, Params), ended)
    return Evaluation([ret for ret, _ in found], [length for _, length in found], cut)
