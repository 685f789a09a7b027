"""Target networks: slow copies of parameters, and how they follow. Pure functions of trees, inside compiled code."""

from __future__ import annotations

from typing import Any

from starling.backends import ops
from starling.components.base import Component
from starling.core.errors import ConfigError
from starling.core.trees import Tree, leaves, refilled

__all__ = ["Copy", "Follow", "Polyak"]


class Follow(Component):
    """How a slow copy follows the parameters."""

    def __call__(self, target: Tree, params: Tree, count: Any) -> Tree:
        """The copy after the gradient step number ``count``, counted from 1."""
        raise NotImplementedError


class Copy(Follow):
    """The parameters themselves, every ``period`` gradient steps; between, the copy stays as it is, untouched."""

    period: int

    def __post_init__(self) -> None:
        if self.period < 1:
            raise ConfigError(f"period={self.period}; a target is copied every 1, 2, … gradient steps.")

    def __call__(self, target: Tree, params: Tree, count: Any) -> Tree:
        due = count % self.period == 0
        # The leaves alone: the branches of a conditional must agree in their containers, the two trees need not.
        chosen = ops(due).cond(due, lambda old, new: new, lambda old, new: old, leaves(target), leaves(params))
        return refilled(target, chosen)


class Polyak(Follow):
    """(1 − τ) · target + τ · params, leaf by leaf, at every gradient step."""

    tau: float

    def __post_init__(self) -> None:
        if not 0 <= self.tau <= 1:
            raise ConfigError(f"tau={self.tau}; it is a share, from 0 to 1.")

    def __call__(self, target: Tree, params: Tree, count: Any) -> Tree:
        if not leaves(params):  # a server that holds none of these parameters
            return target
        mix = ops(leaves(params)[0]).elementwise
        return mix(lambda old, new: ((1.0 - self.tau) * old + self.tau * new,), target, params)[0]
