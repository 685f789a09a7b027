"""Transitions that are soon forgotten."""

from __future__ import annotations

from dataclasses import dataclass, replace

from starling.experience.replayed import Drawing
from starling.experience.transitions import Transitions

__all__ = ["Recent"]


@dataclass(frozen=True, kw_only=True)
class Recent(Transitions):
    """The newest transitions alone, as many as ``batches`` batches: nearly on-policy."""

    batches: int = 20

    @property
    def drawing(self) -> Drawing:
        own = super().drawing
        return replace(own, capacity=min(own.capacity, self.batches * own.batch_size))
