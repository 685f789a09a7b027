"""Data plans: what experience an algorithm learns from, and when."""

from __future__ import annotations

from dataclasses import dataclass

from starling.core.errors import ConfigError
from starling.core.spaces import Dict, Float, Space

__all__ = ["DataPlan", "Replay", "Rollouts"]


@dataclass(frozen=True, kw_only=True)
class Rollouts:
    """On-policy: ``length`` steps of every environment, in order, learned from once.

    ``discount_t`` is 0 at every end of an episode. Where an episode was cut short, the value of its last observation
    is part of ``reward``, so a batch needs no second row of observations.
    """

    length: int  # steps of each environment, T
    gamma: float
    overlap: bool = False  # act with the weights from before the last update

    def batch_space(self, obs: Space, action: Space, extras: Dict) -> Dict:
        """A batch: [T, B] everywhere, [B] for ``next_obs``, the observations after the last step."""
        numbers = {name: Float() for name in ("reward", "discount", "mask")}
        step = Dict({"obs": obs, "action": action, **numbers, **extras.spaces})
        return Dict({**step.ranked(time=True, batch=True).spaces, "next_obs": obs.ranked(batch=True)})


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Off-policy: n-step transitions in a table, sampled again and again."""

    capacity: int  # transitions
    batch_size: int
    min_size: int  # transitions before the first update
    gamma: float
    n_step: int = 1
    every: int = 1  # environment steps between rounds of updates
    updates: int = 1  # updates in a round
    alpha: float = 0.0  # exponent of priorities; 0 draws uniformly
    beta: float = 1.0  # exponent of importance weights
    overlap: bool = False  # act with the weights from before the last round of updates

    def __post_init__(self) -> None:
        if not 1 <= self.batch_size <= self.capacity:
            raise ConfigError(f"batch_size={self.batch_size}; it must be from 1 to capacity={self.capacity}.")
        if self.min_size > self.capacity:
            raise ConfigError(f"learning_starts={self.min_size} is above capacity={self.capacity}; lower it.")

    def batch_space(self, obs: Space, action: Space, extras: Dict) -> Dict:
        """A batch: [B] everywhere; ``weight`` is the importance weight."""
        numbers = {name: Float() for name in ("reward", "discount", "weight")}
        item = Dict({"obs": obs, "action": action, "next_obs": obs, **numbers, **extras.spaces})
        return item.ranked(batch=True)


DataPlan = Rollouts | Replay
