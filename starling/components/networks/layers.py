"""Layers: linear, perceptron, layer norm, noisy linear, and layers in a row."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

from starling.backends import ops
from starling.components.base import Component, api
from starling.components.networks import initialisers
from starling.core.errors import UnknownNameError
from starling.core.params import Initialiser, Params

__all__ = [
    "MLP",
    "LayerNorm",
    "Linear",
    "NoisyLinear",
    "Sequential",
    "activation",
    "affine",
    "as_float",
    "flatten",
    "initialiser",
    "noisy_affine",
    "normalised",
    "sigmoid",
]

_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": lambda x: ops(x).relu(x),
    "tanh": lambda x: ops(x).tanh(x),
    "silu": lambda x: x * sigmoid(x),
    "sigmoid": lambda x: sigmoid(x),
    "elu": lambda x: ops(x).where(x > 0, x, ops(x).expm1(-ops(x).relu(-x))),
    "none": lambda x: x,
}


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(−x)), by tanh, which overflows nowhere."""
    return 0.5 * ops(x).tanh(0.5 * x) + 0.5


def activation(name: str) -> Callable[[Any], Any]:
    """The activation function called ``name``."""
    try:
        return _ACTIVATIONS[name]
    except KeyError:
        raise UnknownNameError("activation", name, _ACTIVATIONS) from None


@cache
def initialiser(name: str) -> Initialiser:
    """The initialiser called ``name``: ``lecun``, ``orthogonal``, or with its gain, ``orthogonal:0.01``."""
    kind, _, gain = name.partition(":")
    if kind in ("orthogonal", "normal", "uniform", "constant"):
        return getattr(initialisers, kind)(float(gain or 1.0))
    if kind in ("lecun", "he", "zeros", "ones"):
        return getattr(initialisers, kind)
    raise UnknownNameError("initialiser", kind, ["lecun", "he", "zeros", "ones", "orthogonal", "normal", "uniform"])


def affine(p: Params, x: Any, size: int, init: str = "lecun", tag: str = "") -> Any:
    """x·w + b, with the parameters ``w<tag>`` and ``b<tag>``: [*, I] -> [*, size]."""
    w = p.get("w" + tag, (x.shape[-1], size), initialiser(init))
    return ops(x).matmul(x, w) + p.get("b" + tag, (size,), initialisers.zeros)


def noisy_affine(p: Params, x: Any, size: int, sigma: float, noise: Any, tag: str = "") -> Any:
    """A linear layer whose weights are μ + σ·ε: [*, I] -> [*, size]; see ``NoisyLinear``."""
    inputs = x.shape[-1]
    bound = 1.0 / math.sqrt(inputs)
    mean, spread = initialisers.uniform(bound), initialisers.constant(sigma * bound)
    y = ops(x).matmul(x, p.get("w" + tag, (inputs, size), mean)) + p.get("b" + tag, (size,), mean)
    w_sigma, b_sigma = p.get("w_sigma" + tag, (inputs, size), spread), p.get("b_sigma" + tag, (size,), spread)
    if noise is None:
        return y
    xp = ops(noise)
    scaled = xp.sign(noise) * xp.sqrt(xp.abs(noise))
    before, after = scaled[..., :inputs], scaled[..., inputs:]
    # x · (σ ∘ ε_in ε_outᵀ) without ever making the noisy matrix, so that every row may have its own noise.
    return y + (xp.matmul(x * before, w_sigma) + b_sigma) * after


def normalised(p: Params, x: Any, epsilon: float = 1e-5, tag: str = "") -> Any:
    """The last dimension moved to mean 0 and variance 1, then scaled and shifted by ``scale<tag>``, ``shift<tag>``."""
    xp, features = ops(x), (x.shape[-1],)
    share = 1.0 / x.shape[-1]  # a sum and a product: NumPy's mean takes five times as long on an actor's batch
    centred = x - xp.sum(x, axis=-1, keepdims=True) * share
    y = centred / xp.sqrt(xp.sum(centred * centred, axis=-1, keepdims=True) * share + epsilon)
    return y * p.get("scale" + tag, features, initialisers.ones) + p.get("shift" + tag, features, initialisers.zeros)


def as_float(x: Any) -> Any:
    """``x`` as float32."""
    xp = ops(x)
    return x if x.dtype == xp.float32 else xp.astype(x, xp.float32)


def flatten(x: Any, rank: int) -> Any:
    """The last ``rank`` dimensions as one; with 0 there is a new one of size 1."""
    if rank == 1:
        return x
    lead = tuple(x.shape[: len(x.shape) - rank])
    return ops(x).reshape(x, (*lead, math.prod(x.shape[len(lead) :])))


class Linear(Component):
    """x·w + b."""

    size: int
    init: str = "lecun"

    @api(x="* I")
    def __call__(self, p: Params, x: Any) -> Any:  # [*, I] -> [*, size]
        return affine(p, x, self.size, self.init)


class LayerNorm(Component):
    """Layer normalisation (Ba et al., 2016) of the last dimension."""

    epsilon: float = 1e-5

    @api(x="* I")
    def __call__(self, p: Params, x: Any) -> Any:  # [*, I] -> [*, I]
        return normalised(p, x, self.epsilon)


class NoisyLinear(Component):
    """A linear layer with learned noise (Fortunato et al., 2018), factorised: ε_ij = f(ε_i) f(ε_j), f(x) = ±√|x|.

    The noise is an argument: standard normals [I + size], or [*, I + size] for every row its own. Without it the
    layer is its mean.
    """

    size: int
    sigma: float = 0.5

    needs: ClassVar[str] = "noise"

    @api(x="* I")
    def __call__(self, p: Params, x: Any, noise: Any = None) -> Any:  # [*, I] -> [*, size]
        return noisy_affine(p, x, self.size, self.sigma, noise)

    def noise_size(self, inputs: int) -> int:
        """How many numbers of noise the layer takes."""
        return inputs + self.size


class MLP(Component):
    """Linear layers with an activation after each one, the last included; layer norm before it if asked for."""

    sizes: tuple[int, ...]
    activation: str = "relu"
    init: str = "lecun"
    layer_norm: bool = False

    @api(x="* I")
    def __call__(self, p: Params, x: Any) -> Any:  # [*, I] -> [*, sizes[-1]]
        activate, init = activation(self.activation), initialiser(self.init)
        for name, size in _layers(self.sizes):
            w = p.get(name, (x.shape[-1], size), init)
            x = ops(x).matmul(x, w) + p.get("b" + name[1:], (size,), initialisers.zeros)
            x = activate(normalised(p, x, tag=name[1:]) if self.layer_norm else x)
        return x


class Sequential(Component):
    """Components in a row, each given the result of the one before: scopes ``layers_0``, ``layers_1``, …"""

    layers: tuple[Component, ...]

    hands_on: ClassVar[bool] = True

    @api
    def __call__(self, p: Params, x: Any) -> Any:
        for i, layer in enumerate(self.layers):
            x = layer(p[f"layers_{i}"], x)
        return x


@cache
def _layers(sizes: tuple[int, ...]) -> list[tuple[str, int]]:
    return [(f"w{i}", size) for i, size in enumerate(sizes)]
