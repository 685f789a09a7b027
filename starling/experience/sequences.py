"""Sequences of steps in a table, each with what acting remembered before its first (R2D2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from starling.core.errors import ConfigError
from starling.core.spaces import Dict, Float
from starling.core.trees import Tree
from starling.data.adders.chunks import Chunk
from starling.data.adders.sequences import SequenceAdder, sequence_signature
from starling.envs.protocol import Step
from starling.experience.plan import Accumulator, Acted, Feed, StepSpaces
from starling.experience.replayed import Replayed

__all__ = ["Sequences"]


@dataclass(frozen=True, kw_only=True)
class Sequences(Replayed):
    """Off-policy: ``burn_in`` steps from which memory is found again, and ``length`` that are learned from.

    Neighbouring sequences of an episode share ``overlap`` steps; none crosses an episode's end, where it is padded.
    """

    length: int  # steps that are learned from
    burn_in: int = 0  # steps before them, from which memory is brought up to date
    overlap: int = 0  # steps that neighbouring sequences share

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.overlap < self.whole:
            raise ConfigError(
                f"overlap={self.overlap}; neighbouring sequences of {self.whole} steps share fewer than all of them."
            )

    @property
    def whole(self) -> int:
        """Steps of a sequence."""
        return self.burn_in + self.length

    @property
    def batch_rows(self) -> int:
        return self.batch_size * self.whole

    @property
    def samples_per_insert(self) -> float:
        return super().samples_per_insert * (self.whole - self.overlap)

    @property
    def first_items(self) -> int:
        return max(1, self.learning_starts // (self.whole - self.overlap))

    def signature(self, spaces: StepSpaces) -> Dict:
        """An item: [T] steps, and one observation more."""
        extras = spaces.extras.spaces
        return sequence_signature(spaces.obs, spaces.action, self.whole, spaces.memory, True, **extras)

    def batch_space(self, spaces: StepSpaces) -> Dict:
        """[B] everywhere, with time inside: ``obs`` [B, T+1, …], ``reward`` [B, T], ``weight`` [B] of importance."""
        item = {name: space for name, space in self.signature(spaces).spaces.items() if name != "version"}
        return Dict({**item, "weight": Float()}).ranked(batch=True)

    def accumulator(self, spaces: StepSpaces, envs: int, chunk: int, priorities: Any = None) -> SequenceAccumulator:
        return SequenceAccumulator(self, self.signature(spaces), envs, chunk)

    def feed(self, spaces: StepSpaces, chunks: int, seed: int, index: int = 0) -> Feed:
        from starling.experience.tables import TableFeed  # needs numba, which actors do without

        return TableFeed(self.signature(spaces), self.drawing, seed, index, chunks)


class SequenceAccumulator(Accumulator):
    """The sequences that up to ``steps`` steps of every environment complete, as rows."""

    def __init__(self, plan: Sequences, signature: Dict, envs: int, steps: int) -> None:
        self._signature, self._envs, self._limit = signature, envs, steps
        self._rows = envs * (2 + steps // (plan.whole - plan.overlap))
        self._chunk = Chunk(signature, self._rows)
        self._adder = SequenceAdder(self._chunk, envs, overlap=plan.overlap, burn_in=plan.burn_in)
        self._steps = 0

    @property
    def full(self) -> bool:
        return self._steps >= self._limit or len(self._chunk) > self._rows - self._envs

    def add(self, obs: Tree, acted: Acted, step: Step, bootstrap: np.ndarray | None) -> None:
        self._adder.version = acted.version
        extras = {**acted.extras, "memory": dict(acted.memory)} if acted.memory else acted.extras
        ends = (step.reward, step.terminated, step.truncated, step.obs, step.final_obs, step.valid)
        self._adder.add(obs, acted.action, extras, *ends)
        self._steps += 1

    def take(self) -> Tree:
        items, count = self._chunk.take()
        self._steps = 0
        return {"rows": np.int64(count), "items": items}

    def blank(self) -> Tree:
        return {"rows": np.int64(0), "items": self._signature.ranked(batch=True).zeros((self._rows,))}

    def state(self) -> Tree:
        return {"adder": self._adder.state()}

    def restore(self, state: Tree) -> None:
        self._adder.restore(state["adder"])
