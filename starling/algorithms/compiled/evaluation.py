"""Greedy evaluation: how good the policy is when it does not explore."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from starling.algorithms.compiled.policy import Policy, memory_where
from starling.core.params import Params, with_scopes
from starling.core.trees import Tree
from starling.envs import Envs, Step

__all__ = ["Evaluation", "evaluate", "greedy_steps", "shares"]

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


def greedy_steps(policy: Policy, envs: Envs) -> Iterator[tuple[Tree, np.ndarray, Step]]:
    """Greedy steps without end: what was seen [B, …], the actions, and what came of them."""
    obs, memory, remembers = envs.reset(), policy.no_memory(envs.count), bool(policy.algorithm.memory.spaces)
    while True:
        choice = policy.greedy(obs, memory)
        action = np.asarray(choice.action)
        step = envs.step(policy.algorithm.to_env(action))
        yield obs, action, step
        obs = step.obs
        if remembers:
            ended = step.terminated | step.truncated | ~step.valid
            memory = memory_where(with_scopes(choice.memory, Params), ended)


def shares(episodes: int, envs: int) -> list[int]:
    """How many episodes each environment plays, from their beginning to their end.

    Taking whichever finish first would favour short episodes.
    """
    return [episodes // envs + (i < episodes % envs) for i in range(envs)]


def evaluate(
    policy: Policy,
    envs: Envs,
    episodes: int,
    report: Callable[[int], None] = lambda done: None,
    longest: int = LONGEST,
) -> Evaluation:
    """Play ``episodes`` greedy episodes; one that does not end within ``longest`` steps counts as it is by then."""
    share = shares(episodes, envs.count)
    found: list[tuple[float, int]] = []
    returns, lengths = np.zeros(envs.count), np.zeros(envs.count, np.int64)  # of the running episodes
    cut = 0
    for _, _, step in greedy_steps(policy, envs):
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
        if len(found) >= episodes:
            break
    return Evaluation([ret for ret, _ in found], [length for _, length in found], cut)
