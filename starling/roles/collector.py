"""The collector: a policy in its environments, and the experience that a plan asks for."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from starling.algorithms.base import Algorithm
from starling.algorithms.compiled.exploring import Exploring, NoiseSource
from starling.core.effects import Effect
from starling.core.random import generator_state, restore_generator, stream
from starling.core.trees import Tree
from starling.envs.protocol import Envs
from starling.experience.plan import Accumulator
from starling.roles.acting import Acting
from starling.roles.run_counters import Tally

__all__ = ["Collector"]


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
        total: int,
        seed: int,
        actor: int = 0,
        actors: int = 1,
        waits_for: int = 0,
        joined_at: int = 0,
        incarnation: int = 0,
        sent: int = 0,
    ) -> None:
        """One that joins later than at the start has other noise than whoever acted in its place before.

        ``waits_for`` is 1 where it waits for the updates that its steps lead to, more where as many learn from their
        own steps each, and 0 where it runs ahead. Who waits does not act past the ``total`` steps of the run either.
        """
        self.acting, self.envs, self.accumulator, self.algorithm = acting, envs, accumulator, algorithm
        self._actor, self._actors, self._waits_for = actor, actors, waits_for
        self._exploring = Exploring(algorithm, envs.count, actor, actors, total)
        self._plan, self._total = algorithm.plan, total
        self._rng = stream(seed, "actor", actor, joined_at, incarnation)
        self._noise = NoiseSource(algorithm, envs.count, self._rng)
        self.steps, self._joined_at = 0, joined_at
        self.sent = sent  # chunks so far
        self._obs: Tree = None
        self._first = np.ones(envs.count, np.bool_)
        self._remembers = bool(algorithm.memory.spaces)
        self._tally = Tally()
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
        if until is not None and self.run_steps < self._total:
            until = min(until, self._total)
        tally, version = self._tally, -1
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
            tally.steps += self._rows
            if step.episodes:
                tally.note(step.episodes)
            if version < 0:
                version = acted.version
            if accumulator.full or (until is not None and self.run_steps >= until):
                break
        data = accumulator.take()
        tally.version = accumulator.oldest(version)
        self.sent += 1
        return {"data": data, "about": tally.take(actor=self._actor, sequence=self.sent - 1)}

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
