"""Initialisers: functions of a generator and a shape."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from starling.core.params import Initialiser

__all__ = ["constant", "he", "lecun", "normal", "ones", "orthogonal", "uniform", "zeros"]


def zeros(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.zeros(shape, np.float32)


def ones(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.ones(shape, np.float32)


def constant(value: float) -> Initialiser:
    return lambda rng, shape: np.full(shape, value, np.float32)


def normal(scale: float) -> Initialiser:
    return lambda rng, shape: (scale * rng.standard_normal(shape)).astype(np.float32)


def uniform(scale: float) -> Initialiser:
    return lambda rng, shape: rng.uniform(-scale, scale, shape).astype(np.float32)


def fan_in(shape: tuple[int, ...]) -> int:
    """How many inputs feed one output: all dimensions but the last."""
    return max(1, math.prod(shape[:-1]))


def lecun(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Uniform in ±1/√fan_in, PyTorch's default for linear layers."""
    return uniform(1.0 / math.sqrt(fan_in(shape)))(rng, shape)


def he(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Uniform with variance 2/fan_in (He et al., 2015)."""
    return uniform(math.sqrt(6.0 / fan_in(shape)))(rng, shape)


def orthogonal(gain: float = 1.0) -> Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]:
    """A random orthogonal matrix times ``gain`` (Saxe et al., 2014); kernels are flattened to [fan_in, out]."""

    def init(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        rows, columns = fan_in(shape), shape[-1]
        q, r = np.linalg.qr(rng.standard_normal((max(rows, columns), min(rows, columns))))
        q = q * np.sign(np.diag(r))
        return (gain * (q if rows >= columns else q.T)).reshape(shape).astype(np.float32)

    return init
