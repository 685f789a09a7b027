"""What acting is given beside observations: noise, and how much to explore."""

from __future__ import annotations

from typing import Any

import numpy as np

from starling.algorithms.base import Algorithm
from starling.core.trees import Tree

__all__ = ["Exploring", "NoiseSource"]

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

    def __init__(self, algorithm: Algorithm, envs: int, actor: int, actors: int, total: int) -> None:
        """Each of the ``actors`` has so many ``envs``; ``total`` are the steps of the run."""
        self._algorithm, self._total, self._total_rows = algorithm, total, envs * actors
        self._rows = np.arange(actor * envs, (actor + 1) * envs)
        self._value: Any = None
        self._array = np.zeros(envs, np.float32)

    def __call__(self, steps: int) -> np.ndarray:
        """After so many steps of the run: [B]."""
        value = self._algorithm.exploration(min(1.0, steps / self._total), self._rows, self._total_rows)
        if isinstance(value, np.ndarray):
            return value
        if value != self._value:
            self._value, self._array = value, np.full(len(self._rows), value, np.float32)
        return self._array
