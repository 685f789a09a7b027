"""Preprocessing: what happens to observations before a network sees them."""

from __future__ import annotations

from typing import Any

from starling.backends import ops
from starling.components.base import Component, api
from starling.components.networks.layers import as_float, flatten
from starling.core.errors import ConfigError
from starling.core.params import Params

__all__ = ["OneHot", "Scale", "Stack"]


class Scale(Component):
    """(x − shift) · factor as float32: bytes to [0, 1] by default."""

    factor: float = 1.0 / 255.0
    shift: float = 0.0

    @api
    def __call__(self, p: Params, x: Any) -> Any:  # [*] -> [*]
        x = as_float(x)
        return (x - self.shift if self.shift else x) * self.factor


class OneHot(Component):
    """Whole numbers from ``low`` on as rows with a single one; ``rank`` dimensions of numbers become one row."""

    categories: int
    low: int = 0
    rank: int = 0

    @api(x="int *")
    def __call__(self, p: Params, x: Any) -> Any:  # [*, (rank dims)] -> [*, product · categories]
        return flatten(ops(x).one_hot(x - self.low if self.low else x, self.categories), self.rank + 1)


class Stack(Component):
    """The last ``count`` observations along the last axis, oldest first, as a pure function of a state.

    state = stack.initial(obs)
    state, stacked = stack.step(state, obs, reset)     # reset [B]: an episode begins with this observation
    """

    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ConfigError(f"count={self.count}; a stack holds at least 1 observation.")

    @api
    def initial(self, obs: Any) -> Any:  # [B, …, C] -> [B, …, C · count]
        """The state before the first observation: zeros."""
        xp = ops(obs)
        return xp.zeros_like(xp.concat([obs] * self.count, axis=-1))

    @api
    def step(self, state: Any, obs: Any, reset: Any) -> tuple[Any, Any]:
        """The new state, which is the stack itself, twice; what came before a reset is zeros."""
        xp = ops(obs)
        begins = xp.reshape(reset, (*reset.shape, *(1 for _ in obs.shape[len(reset.shape) :])))
        kept = xp.where(begins, xp.zeros_like(state), state)[..., obs.shape[-1] :]
        stacked = xp.concat([kept, obs], axis=-1)
        return stacked, stacked
