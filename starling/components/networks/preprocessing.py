"""Preprocessing: what happens to observations before a network sees them."""

from __future__ import annotations

from typing import Any, ClassVar

from starling.backends import ops
from starling.components.base import Component, api
from starling.components.networks import initialisers
from starling.components.networks.layers import as_float, flatten
from starling.core.errors import ConfigError
from starling.core.params import Params
from starling.maths.normalisation import merge_moments, moments_of, normalise

__all__ = ["OneHot", "RunningNormaliser", "Scale", "Stack"]


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


class RunningNormaliser(Component):
    """(x − mean) / std of everything observed so far, kept within ±clip.

    The statistics are parameters, so they travel with the weights; no gradient reaches them. ``observe`` returns the
    component's scope with a batch added, for the caller to put in the place of the old one.
    """

    clip: float = 10.0
    epsilon: float = 1e-8
    rank: int = 1  # dimensions of one observation

    needs: ClassVar[str] = "statistics"

    @api
    def __call__(self, p: Params, x: Any) -> Any:  # [*, …] -> [*, …]
        return normalise(as_float(x), self._moments(p, x), self.clip, self.epsilon)

    @api
    def observe(self, p: Params, x: Any) -> Params:  # [*, …] -> scope
        """The statistics with every row of ``x`` added (Chan et al., 1979)."""
        return Params(merge_moments(self._moments(p, x), moments_of(as_float(x), len(x.shape) - self.rank)))

    def _moments(self, p: Params, x: Any) -> dict[str, Any]:
        shape = tuple(x.shape[len(x.shape) - self.rank :])
        shapes = {"count": (), "mean": shape, "m2": shape}
        return {name: ops(x).stop_gradient(p.get(name, shapes[name], initialisers.zeros)) for name in shapes}
