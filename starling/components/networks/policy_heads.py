"""Heads that answer with policies: distributions over actions, which draw nothing by themselves."""

from __future__ import annotations

from typing import Any

import numpy as np

from starling.backends import ops
from starling.components.base import Component, api
from starling.components.networks.initialisers import constant
from starling.components.networks.layers import affine
from starling.core.errors import SpaceError
from starling.core.params import Params
from starling.core.spaces import Bool, Float, Int, Leaf, Space
from starling.maths.distributions import Bernoulli, Categorical, MultiDiscrete, masked
from starling.maths.gaussians import Gaussian, TanhGaussian

__all__ = [
    "BernoulliHead",
    "CategoricalHead",
    "DeterministicHead",
    "GaussianHead",
    "MultiDiscreteHead",
    "TanhGaussianHead",
    "policy_head_for",
    "squashed_head_for",
]

POLICY_INIT = "orthogonal:0.01"  # nearly the same policy everywhere to begin with


class CategoricalHead(Component):
    """A policy over ``actions`` actions; a false ``mask`` [*, A] makes one impossible."""

    actions: int
    init: str = POLICY_INIT

    @api(features="* F", mask="bool * {actions}")
    def distribution(self, p: Params, features: Any, mask: Any = None) -> Categorical:
        return Categorical(affine(p, features, self.actions, self.init), mask)


class MultiDiscreteHead(Component):
    """A policy over several choices at once: actions [*, K]; a mask has all choices side by side."""

    sizes: tuple[int, ...]
    init: str = POLICY_INIT

    @api(features="* F", mask="bool * M")
    def distribution(self, p: Params, features: Any, mask: Any = None) -> MultiDiscrete:
        return MultiDiscrete.split(affine(p, features, sum(self.sizes), self.init), self.sizes, mask)


class BernoulliHead(Component):
    """A policy over ``size`` switches; one whose ``mask`` is false stays off."""

    size: int
    init: str = POLICY_INIT

    @api(features="* F", mask="bool * {size}")
    def distribution(self, p: Params, features: Any, mask: Any = None) -> Bernoulli:
        return Bernoulli(masked(affine(p, features, self.size, self.init), mask))


class GaussianHead(Component):
    """A normal policy; its log standard deviation is one parameter each, or another output of the network."""

    size: int
    log_std_init: float = 0.0
    state_dependent: bool = False
    init: str = POLICY_INIT

    @api(features="* F")
    def distribution(self, p: Params, features: Any, mask: Any = None) -> Gaussian:
        _refuse(mask)
        mean = affine(p, features, self.size, self.init)
        if self.state_dependent:
            return Gaussian(mean, affine(p, features, self.size, self.init, "_std") + self.log_std_init)
        return Gaussian(mean, p.get("log_std", (self.size,), constant(self.log_std_init)))


class TanhGaussianHead(Component):
    """A normal policy squashed to (−1, 1) (Haarnoja et al., 2018)."""

    size: int
    log_std_min: float = -20.0
    log_std_max: float = 2.0
    init: str = POLICY_INIT

    @api(features="* F")
    def distribution(self, p: Params, features: Any, mask: Any = None) -> TanhGaussian:
        _refuse(mask)
        log_std = affine(p, features, self.size, self.init, "_std")
        log_std = ops(log_std).clip(log_std, self.log_std_min, self.log_std_max)
        return TanhGaussian(affine(p, features, self.size, self.init), log_std)


class DeterministicHead(Component):
    """One action in (−1, 1) (Silver et al., 2014)."""

    size: int
    init: str = POLICY_INIT

    @api(features="* F")
    def action(self, p: Params, features: Any) -> Any:  # [*, F] -> [*, size]
        mean = affine(p, features, self.size, self.init)
        return ops(mean).tanh(mean)


def _refuse(mask: Any) -> None:
    if mask is not None:
        raise SpaceError("a mask arrived for continuous actions; only discrete actions can be masked.")


def policy_head_for(space: Space) -> Component:
    """The head of a stochastic policy for an action space; actions of several dimensions come out flat, [*, K]."""
    if isinstance(space, Int) and np.all(np.asarray(space.low) == 0):
        if not space.shape:
            return CategoricalHead(space.categories)
        return MultiDiscreteHead(tuple(int(n) for n in np.broadcast_to(space.high, space.shape).ravel()))
    if isinstance(space, Bool):
        return BernoulliHead(max(space.size, 1))
    if isinstance(space, Float):
        return GaussianHead(max(space.size, 1))
    kind = f"{space} from {space.low} on" if isinstance(space, Leaf) else str(space)
    raise SpaceError(
        f"the action space {kind} arrived; supported are Int counting from 0 (one choice, or a vector of them), Bool "
        "and Float. Wrap the environment so that it uses one of these."
    )


def squashed_head_for(space: Space) -> TanhGaussianHead:
    """The head of a squashed policy for a bounded continuous action space; the caller stretches (−1, 1) to it."""
    if isinstance(space, Float) and space.bounded:
        return TanhGaussianHead(max(space.size, 1))
    raise SpaceError(
        f"the action space {space} arrived; a squashed policy needs Float with finite low and high. "
        "Give the space its bounds, or take an algorithm for its kind of actions."
    )
