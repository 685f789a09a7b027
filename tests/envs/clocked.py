"""Asynchronous environments on a clock of their own: how fast a row is does not depend on the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from starling.core.trees import map_leaves
from starling.envs import AsyncEnvs, GymEnvs, Step
from starling.envs.held_rows import HeldRows


class Clocked(AsyncEnvs):
    """A step of row i takes ``seconds[i]``; ``taken`` counts the steps of each row that were received."""

    def __init__(self, env: Callable[..., Any], seconds: list[float], batch: int, seed: int = 0) -> None:
        self.count, self.batch, self.name = len(seconds), batch, env.__name__
        self._rows = [GymEnvs(env, 1, seed, self.name, (), i) for i in range(self.count)]
        self.observation_space, self.action_space = self._rows[0].observation_space, self._rows[0].action_space
        self._seconds, self._now = np.array(seconds, float), 0.0
        self._held, self._answers = HeldRows(self.name, self.count, batch), {}
        self.taken = np.zeros(self.count, int)
        self._restores = 0

    def reset(self) -> None:
        self._held.release_all()
        self._answers = {i: (self._now + self._seconds[i], self._reset(i)) for i in range(self.count)}

    def _reset(self, i: int) -> Step:
        none = np.zeros(1, np.bool_)
        return Step(self._rows[i].reset(), np.zeros(1, np.float32), none, none, None, none)

    def recv(self) -> tuple[np.ndarray, Step]:
        self._held.require_enough()
        first = sorted(self._answers, key=lambda i: (self._answers[i][0], i))[: self.batch]
        rows = np.sort(np.array(first))
        self._held.take(rows)
        answers = [self._answers.pop(i) for i in rows.tolist()]
        self._now = max(self._now, *(at for at, _ in answers))
        steps = [step for _, step in answers]
        joined = {
            name: map_leaves(lambda *leaves: np.concatenate(leaves), *(getattr(step, name) for step in steps))
            for name in ("obs", "reward", "terminated", "truncated", "valid")
        }
        ended = any(step.final_obs is not None for step in steps)
        finals = [step.obs if step.final_obs is None else step.final_obs for step in steps]
        final = map_leaves(lambda *leaves: np.concatenate(leaves), *finals) if ended else None
        episodes = [each._replace(env=i) for i, step in zip(rows.tolist(), steps) for each in step.episodes]
        self.taken[rows] += joined["valid"]
        return rows, Step(final_obs=final, episodes=episodes, **joined)

    def send(self, rows: np.ndarray, action: Any) -> None:
        for place, i in enumerate(self._held.release(rows).tolist()):
            one = map_leaves(lambda leaf, place=place: leaf[place : place + 1], action)
            self._answers[i] = (self._now + self._seconds[i], self._rows[i].step(one))

    def state(self) -> dict[str, Any]:
        return {"restores": self._restores}

    def restore(self, state: dict[str, Any]) -> None:
        self._restores = int(state["restores"]) + 1
        self.reset()

    def close(self) -> None:
        for row in self._rows:
            row.close()
