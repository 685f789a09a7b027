"""The collector: a policy in its environments, and the experience that a plan asks for."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from starling.algorithms.base import Algorithm
from starling.core.effects import Effect
from starling.core.random import generator_state, restore_generator, stream
from starling.core.trees import Tree
from starling.envs.protocol import Envs, Episode
from starling.experience.plan import Accumulator
from starling.roles.acting import Acting

__all__ = ["EPISODES", "Collector", "Exploring", "NoiseSource", "blank_about"]

EPISODES = 64  # returns that fit into a chunk; further ones are counted only
AHEAD = 32  # steps that noise is drawn for at a time


class NoiseSource:
    """Noise for acting, drawn for many steps at a time; each draw lasts for ``hold_noise`` steps."""

    def __init__(self, algorithm: Algorithm, rows: int, rng: np.random.Generator) -> None:
        self._algorithm, self._rows, self._rng = algorithm, rows, rng
        self._drawn = algorithm.act_noise(rng, (0, rows))
        self._next, self._held = 0, 0

    def next(self) -> np.ndarray:
        """The noise of the next step, [B, …]."""
        if self._held == 0:
            self._held = self._algorithm.hold_noise
            self._next += 1
        if self._next >= len(self._drawn):
            self._drawn, self._next = self._algorithm.act_noise(self._rng, (AHEAD, self._rows)), 0
        self._held -= 1
        return self._drawn[self._next]

    def state(self) -> Tree:
        return {"drawn": self._drawn.copy(), "next": self._next, "held": self._held}

    def restore(self, state: Tree) -> None:
        self._drawn, self._next, self._held = np.array(state["drawn"]), int(state["next"]), int(state["held"])


class Exploring:
    """How much the environments of one actor explore, as the run goes on."""

    def __init__(self, algorithm: Algorithm, rows: np.ndarray, total_rows: int, total_steps: int) -> None:
        """``rows`` are the numbers of its environments among the ``total_rows`` of the run."""
        self._algorithm, self._rows, self._total_rows, self._total = algorithm, rows, total_rows, total_steps
        self._value: Any = None
        self._array = np.zeros(len(rows), np.float32)

    def __call__(self, steps: int) -> np.ndarray:
        """After so many steps of the run: [B]."""
        value = self._algorithm.exploration(min(1.0, steps / self._total), self._rows, self._total_rows)
        if isinstance(value, np.ndarray):
            return value
        if value != self._value:
            self._value, self._array = value, np.full(len(self._rows), value, np.float32)
        return self._array


class Collector:
    """Acts until a chunk is full, or until the updates fall due that it waits for.

    ``steps`` are its own; those of the run are estimated by what the run had when it joined, and its own times the
    number of ``actors``.
    """

    def __init__(
        self,
        acting: Acting,
        envs: Envs,
        accumulator: Accumulator,
        algorithm: Algorithm,
        exploring: Exploring,
        seed: int,
        actor: int = 0,
        actors: int = 1,
        waits_for: int = 0,
        joined_at: int = 0,
        incarnation: int = 0,
        sent: int = 0,
        total: int | None = None,
    ) -> None:
        """One that joins later than at the start has other noise than whoever acted in its place before.

        ``waits_for`` is 1 where it waits for the updates that its steps lead to, more where as many learn from their
        own steps each, and 0 where it runs ahead. Who waits does not act past the ``total`` steps of the run either.
        """
        self.acting, self.envs, self.accumulator, self.algorithm = acting, envs, accumulator, algorithm
        self._exploring, self._actor, self._actors, self._waits_for = exploring, actor, actors, waits_for
        self._plan, self._total = algorithm.plan, total
        self._rng = stream(seed, "actor", actor, joined_at, incarnation)
        self._noise = NoiseSource(algorithm, envs.count, self._rng)
        self.steps, self._joined_at = 0, joined_at
        self.sent = sent  # chunks so far
        self._obs: Tree = None
        self._first = np.ones(envs.count, np.bool_)
        self._remembers = bool(algorithm.memory.spaces)
        self._episodes: list[Episode] = []
        self._valid, self._rows = np.zeros(0, np.bool_), 0  # the rows that counted in the last step, and how many

    @property
    def run_steps(self) -> int:
        """The steps of the run, as this actor knows them."""
        return self._joined_at + self.steps * self._actors

    def collect(self) -> Generator[Effect, Any, Tree]:
        """The next chunk: ``{"data": …, "about": …}``."""
        accumulator, act, step_envs, to_env = self.accumulator, self.acting.act, self.envs.step, self.algorithm.to_env
        noise, exploring, add, bootstraps = self._noise.next, self._exploring, accumulator.add, accumulator.bootstraps
        if self._obs is None or accumulator.restarts:
            self._obs, self._first = self.envs.reset(), np.ones(self.envs.count, np.bool_)
        accumulator.begin(self.acting, self._rng)
        until = self._plan.boundary(self.run_steps, self._waits_for) if self._waits_for else None
        if until is not None and self._total is not None and self.run_steps < self._total:
            until = min(until, self._total)
        before, version = self.steps, -1
        while True:
            obs = self._obs
            acted = yield from act(obs, self._first, noise(), exploring(self.run_steps))
            step = step_envs(to_env(acted.action))
            bootstrap = None
            if step.final_obs is not None and bootstraps and step.truncated.any():
                values = yield from self.acting.values(step.final_obs)
                bootstrap = np.where(step.truncated & ~step.terminated, values, np.float32(0))
            add(obs, acted, step, bootstrap)
            self._obs = step.obs
            if self._remembers:
                self._first = step.terminated | step.truncated | ~step.valid
            if step.valid is not self._valid:  # environments without invalid rows always give the same array
                self._valid, self._rows = step.valid, int(step.valid.sum())
            self.steps += self._rows
            if step.episodes:
                self._episodes += step.episodes
            if version < 0:
                version = acted.version
            if accumulator.full or (until is not None and self.run_steps >= until):
                break
        data = accumulator.take()
        version = accumulator.oldest(version)
        numbers = {"version": version, "actor": self._actor, "sequence": self.sent, "steps": self.steps - before}
        self.sent += 1
        episodes, self._episodes = self._episodes, []
        return {"data": data, "about": _about(numbers, episodes)}

    def state(self) -> Tree:
        """Where collecting is: environments, generator, counters, and what is left of the last chunk."""
        if self._obs is None:
            self._obs = self.envs.reset()
        return {
            "steps": self.steps,
            "joined_at": self._joined_at,
            "sent": self.sent,
            "rng": generator_state(self._rng),
            "noise": self._noise.state(),
            "first": self._first.copy(),
            "envs": self.envs.state(),
            "accumulator": self.accumulator.state(),
        }

    def restore(self, state: Tree) -> None:
        self.steps, self.sent, self._joined_at = int(state["steps"]), int(state["sent"]), int(state["joined_at"])
        restore_generator(self._rng, state["rng"])
        self._noise.restore(state["noise"])
        self._obs = self.envs.restore(state["envs"])
        if self.envs.exact_resume:  # else new episodes have begun
            self._first = np.array(state["first"], np.bool_)
            self.accumulator.restore(state["accumulator"])


def _about(numbers: dict[str, int], episodes: list[Episode]) -> dict[str, Any]:
    """What a learner must know of a chunk: which weights acted, how many steps it holds, which episodes ended in it."""
    returns, lengths = np.zeros(EPISODES, np.float32), np.zeros(EPISODES, np.float32)
    for i, episode in enumerate(episodes[:EPISODES]):
        returns[i], lengths[i] = episode.ret, episode.length
    counts = {name: np.int64(value) for name, value in {**numbers, "episodes": len(episodes)}.items()}
    return {**counts, "returns": returns, "lengths": lengths}


def blank_about() -> dict[str, Any]:
    """What is said of a chunk, in its layout."""
    return _about({"version": 0, "actor": 0, "sequence": 0, "steps": 0}, [])
