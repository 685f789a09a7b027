"""Sequences of steps in a table, each with what acting remembered before its first (R2D2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starling.core.errors import ConfigError
from starling.core.spaces import Dict
from starling.data.adders.chunks import Chunk
from starling.data.adders.sequences import SequenceAdder, sequence_signature
from starling.experience.plan import StepSpaces
from starling.experience.replayed import Replayed, RowAccumulator

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
        """An item: [T] steps, and one observation more; ``reward`` of a batch is [B, T], ``obs`` [B, T+1, …]."""
        extras = spaces.extras.spaces
        return sequence_signature(spaces.obs, spaces.action, self.whole, spaces.memory, True, **extras)

    def accumulator(self, spaces: StepSpaces, envs: int, chunk: int, priorities: Any = None) -> RowAccumulator:
        rows = Chunk(self.signature(spaces), envs * (2 + chunk // (self.whole - self.overlap)))
        return RowAccumulator(SequenceAdder(rows, envs, overlap=self.overlap, burn_in=self.burn_in), rows, chunk)
