"""Chunks: what an actor sends at a time, with what the learner must know of it.

A chunk is ``{"data": …, "about": …}``. ``about`` says which weights acted, how many steps it holds, and the returns of
the episodes that ended in it. The data is a rollout [T, B], or the transitions that became complete, as rows.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from starling.algorithms.base import Algorithm
from starling.algorithms.plans import Replay, Rollouts
from starling.core.effects import Effect
from starling.core.trees import Tree, map_leaves
from starling.envs.protocol import Envs, Episode, Step
from starling.roles.collectors import Collector, RolloutCollector
from starling.roles.policy import AnyPolicy, Policy
from starling.roles.windows import Windows

__all__ = ["Chunks", "StepCollector", "blank_chunk", "joined", "rows_of"]

EPISODES = 64  # returns that fit into a chunk; further ones are counted only


def blank_chunk(algorithm: Algorithm, envs: int, length: int) -> Tree:
    """A chunk of zeros, with the shapes and dtypes of every chunk of an actor with ``envs`` environments."""
    plan = algorithm.plan
    obs, action, extras = algorithm.observation_space, algorithm.action_space, algorithm.extras
    if isinstance(plan, Rollouts):
        spaces = plan.batch_space(obs, action, extras).spaces
        lead = {name: (envs,) if name == "next_obs" else (plan.length, envs) for name in spaces}
    else:
        spaces = {**plan.batch_space(obs, action, extras).spaces}
        lead = dict.fromkeys(spaces, ((length + plan.n_step - 1) * envs,))
    data = {name: space.zeros(lead[name]) for name, space in spaces.items()}
    if isinstance(plan, Replay):
        data["priority"] = data.pop("weight")
    return {"data": data, "about": _about(0, 0, 0, 0, 0, [])}


def _about(version: int, actor: int, sequence: int, steps: int, rows: int, episodes: list[Episode]) -> dict[str, Any]:
    returns = np.zeros(EPISODES, np.float32)
    kept = [episode.ret for episode in episodes[:EPISODES]]
    returns[: len(kept)] = kept
    numbers = {"version": version, "actor": actor, "sequence": sequence, "steps": steps, "rows": rows}
    numbers["episodes"] = len(episodes)
    return {**{name: np.int64(value) for name, value in numbers.items()}, "returns": returns}


def rows_of(chunk: Tree) -> Tree:
    """The transitions of a chunk, without the empty rows that a fixed layout has."""
    rows = int(chunk["about"]["rows"])
    return map_leaves(lambda x: x[:rows], chunk["data"])


def joined(chunks: list[Tree]) -> Tree:
    """The rollouts of several actors as one batch, always in the order of the actors and of their chunks."""
    ordered = sorted(chunks, key=lambda chunk: (int(chunk["about"]["actor"]), int(chunk["about"]["sequence"])))
    data = [chunk["data"] for chunk in ordered]
    if len(data) == 1:
        return data[0]
    paths = {name: [each[name] for each in data] for name in data[0]}
    return {
        name: map_leaves(lambda *x, axis=0 if name == "next_obs" else 1: np.concatenate(x, axis=axis), *each)
        for name, each in paths.items()
    }


class StepCollector(Collector):
    """``length`` steps of every environment at a time, as the transitions that they complete.

    Where the actor ``prioritizes``, each has the priority that the acting weights give it; else 1, which nobody reads.
    """

    def __init__(
        self, policy: AnyPolicy, envs: Envs, seed: int, length: int, actor: int = 0, prioritizes: bool = False
    ) -> None:
        super().__init__(policy, envs, seed, actor)
        plan = self.algorithm.plan
        assert isinstance(plan, Replay)
        self.length, self._windows = length, Windows(envs.count, plan.n_step, plan.gamma)
        self._prioritizes = prioritizes and bool(plan.alpha)
        self._noise, self._held = np.zeros(0), 0

    def gather(self) -> Generator[Effect, Any, Tree]:
        """The transitions, as rows."""
        self._begin()
        act: Any = self.policy.act
        here, to_env = self.policy.here, self.algorithm.to_env
        rows = []
        for _ in range(self.length):
            noise, explore = self._next_noise(), self.explore()
            chosen = act(self.obs, noise, explore) if here else (yield from act(self.obs, noise, explore))
            step = self.envs.step(to_env(chosen["action"]))
            rows.append({"obs": self.obs, **chosen, **_outcome(step)})
            self.steps += int(step.valid.sum())
            self.episodes += step.episodes
            self.obs = step.obs
        steps = map_leaves(lambda *each: np.array(each), *rows)
        transitions = self._windows.complete(steps)
        transitions["priority"] = self._priorities(transitions)
        return transitions

    def _next_noise(self) -> np.ndarray:
        if self._held == 0:
            self._noise, self._held = self.algorithm.act_noise(self._rng, (self.envs.count,)), self.algorithm.hold_noise
        self._held -= 1
        return self._noise

    def _priorities(self, transitions: Tree) -> np.ndarray:
        count = len(transitions["reward"])
        if not self._prioritizes or count == 0:
            return np.ones(count, np.float32)
        assert isinstance(self.policy, Policy)
        return self.policy.priorities({**transitions, "weight": np.ones(count, np.float32)})


def _outcome(step: Step) -> dict[str, Any]:
    """What a step led to, with the true successors."""
    ended = step.terminated | step.truncated
    succ = step.obs
    if step.final_obs is not None and ended.any():
        succ = map_leaves(
            lambda final, now: np.where(ended.reshape(-1, *[1] * (now.ndim - 1)), final, now), step.final_obs, step.obs
        )
    names = ("reward", "terminated", "truncated", "valid")
    return {**{name: getattr(step, name) for name in names}, "next_obs": succ}


class Chunks:
    """Makes an actor's chunks and numbers them; ``actors`` is how many share the run.

    With ``ladder`` every actor explores on a rung of its own, where the algorithm has one.
    """

    def __init__(
        self, collector: RolloutCollector | StepCollector, actor: int, actors: int, sent: int = 0, ladder: bool = False
    ) -> None:
        self.collector, self.actor, self.sent = collector, actor, sent
        algorithm = collector.algorithm
        rung = algorithm.ladder(actor, actors) if ladder else None
        self.collector.explore = lambda: algorithm.exploration(collector.steps * actors) if rung is None else rung

    def next(self) -> Generator[Effect, Any, Tree]:
        """The next chunk."""
        collector = self.collector
        before = collector.steps
        collector.policy.begin()
        data = yield from collector.gather()
        numbers = (collector.policy.began, self.actor, self.sent, collector.steps - before)
        self.sent += 1
        return {"data": data, "about": _about(*numbers, len(data["reward"]), collector.take_episodes())}
