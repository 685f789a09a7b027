"""Optimisers, written once for every backend.

    state = optimiser.init(params)
    params, state = optimiser.step(params, gradients, state, progress)

They are pure functions of trees, so their state has the same names on every backend, travels in a checkpoint from one
to another, and a parameter server can apply gradients with NumPy alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from starling.backends import ops
from starling.components.base import Component
from starling.components.schedules import Constant, Schedule
from starling.core.errors import ConfigError
from starling.core.trees import Tree, leaves, map_leaves

__all__ = ["SGD", "Adam", "Optimiser", "RMSProp", "clip_by_global_norm", "clip_scale", "global_norm"]


def global_norm(tree: Tree) -> Any:
    """√ of the sum of the squares of every element."""
    flat = leaves(tree)
    xp = ops(flat[0])
    return xp.sqrt(sum(xp.sum(xp.square(leaf)) for leaf in flat))


def clip_scale(tree: Tree, limit: float) -> Any:
    """What to multiply the tree by for a global norm of at most ``limit``."""
    norm = global_norm(tree)
    return limit / ops(norm).maximum(norm, ops(norm).asarray(limit, dtype=norm.dtype))


def clip_by_global_norm(tree: Tree, limit: float) -> Tree:
    """The tree scaled down to a global norm of ``limit`` where it is above it."""
    scale = clip_scale(tree, limit)
    return map_leaves(lambda leaf: leaf * scale, tree)


class Optimiser(Component):
    """What every optimiser shares: a learning rate over the run's progress, clipping, and the count of its steps."""

    learning_rate: Schedule = Constant(1e-3)
    clip: float = 0.0  # global norm of the gradients; 0 leaves them alone
    scopes: tuple[str, ...] = ()  # of the parameters that it moves; none: all that learn
    period: int = 1  # gradient steps from one of its steps to the next, as TD3's policy has it

    def __post_init__(self) -> None:
        if self.clip < 0:
            raise ConfigError(f"clip={self.clip}; it must be 0 (off) or above.")
        if self.period < 1:
            raise ConfigError(f"period={self.period}; an optimiser steps every 1, 2, … gradient steps.")

    def init(self, params: Tree) -> Tree:
        """The state before the first step."""
        flat = leaves(params)
        xp = ops(flat[0])
        slots = {name: map_leaves(lambda leaf: ops(leaf).zeros_like(leaf), params) for name in self.slots()}
        # A whole number: float32 stops counting at 2²⁴.
        return {"count": xp.zeros((), dtype=xp.int32), **slots}

    def step(self, params: Tree, gradients: Tree, state: Tree, progress: Any = 0.0) -> tuple[Tree, Tree]:
        """The parameters and the state after one step."""
        if not leaves(params):  # a server that holds none of these parameters
            return params, {**state, "count": state["count"] + 1}
        count, scale = state["count"] + 1, clip_scale(gradients, self.clip) if self.clip else None
        rate, rule = self.learning_rate(progress), self.rule(count)

        def move(parameter: Any, gradient: Any, *slots: Any) -> tuple[Any, ...]:
            change, *slots_after = rule(parameter, gradient if scale is None else gradient * scale, *slots)
            return parameter - rate * change, *slots_after

        kept = [state[name] for name in self.slots()]
        moved, *after = ops(count).elementwise(move, params, gradients, *kept)
        return moved, {"count": count, **dict(zip(self.slots(), after))}

    def slots(self) -> tuple[str, ...]:
        """The names of the trees kept beside the parameters."""
        raise NotImplementedError

    def rule(self, count: Any) -> Callable[..., tuple[Any, ...]]:
        """The ``count``-th step, for each element: (parameter, gradient, *slots) -> (change, *slots).

        The change is subtracted, times the learning rate.
        """
        raise NotImplementedError


class SGD(Optimiser):
    """Gradient descent, with momentum if asked for."""

    momentum: float = 0.0

    def slots(self) -> tuple[str, ...]:
        return ("momentum",) if self.momentum else ()

    def rule(self, count: Any) -> Callable[..., tuple[Any, ...]]:
        if not self.momentum:
            return lambda parameter, gradient: (gradient,)

        def with_momentum(parameter: Any, gradient: Any, momentum: Any) -> tuple[Any, ...]:
            momentum = self.momentum * momentum + gradient
            return momentum, momentum

        return with_momentum


class RMSProp(Optimiser):
    """RMSProp (Tieleman & Hinton, 2012), ε inside or outside the root."""

    decay: float = 0.99
    eps: float = 1e-5
    eps_inside: bool = False

    def slots(self) -> tuple[str, ...]:
        return ("square",)

    def rule(self, count: Any) -> Callable[..., tuple[Any, ...]]:
        def scaled(parameter: Any, gradient: Any, square: Any) -> tuple[Any, ...]:
            square = self.decay * square + (1 - self.decay) * gradient * gradient
            root = ops(square).sqrt(square + self.eps) if self.eps_inside else ops(square).sqrt(square) + self.eps
            return gradient / root, square

        return scaled


class Adam(Optimiser):
    """Adam (Kingma & Ba, 2015); with ``weight_decay``, AdamW (Loshchilov & Hutter, 2019)."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0

    def slots(self) -> tuple[str, ...]:
        return ("mean", "square")

    def rule(self, count: Any) -> Callable[..., tuple[Any, ...]]:
        # (m / mean_bias) / (√(s / square_bias) + ε) with what is the same for every element taken together.
        mean_bias, square_bias = _bias(self.beta1, count), _bias(self.beta2, count)
        stretch, eps = mean_bias / ops(square_bias).sqrt(square_bias), self.eps * mean_bias

        def scaled(parameter: Any, gradient: Any, mean: Any, square: Any) -> tuple[Any, ...]:
            mean = self.beta1 * mean + (1 - self.beta1) * gradient
            square = self.beta2 * square + (1 - self.beta2) * gradient * gradient
            change = mean / (ops(square).sqrt(square) * stretch + eps)
            return (change + self.weight_decay * parameter if self.weight_decay else change), mean, square

        return scaled


def _bias(beta: float, count: Any) -> Any:
    """1 − β^count; written with expm1, since 1 − 0.999 keeps only five digits in float32."""
    xp = ops(count)
    count = xp.astype(count, xp.float32)
    return -xp.expm1(math.log(beta) * count) if beta else xp.ones_like(count)
