"""Numbers that depend on how far a run has come.

``count`` is a Python number, and so is the result; or an array inside compiled code, and the result is float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from starling.backends import ops
from starling.core.errors import ConfigError

__all__ = ["constant", "cosine", "exponential", "importance_weights", "linear", "piecewise", "warmup"]


def constant(count: Any, value: float) -> Any:
    """Always ``value``."""
    x = _real(count)
    return _like(count, value + ops(x).zeros_like(x))


def linear(count: Any, start: float, end: float, steps: float, begin: float = 0.0) -> Any:
    """From ``start`` at ``begin`` in a straight line to ``end`` after ``steps`` counts, constant outside."""
    return _like(count, start + (end - start) * _progress(_real(count), begin, steps))


def exponential(count: Any, start: float, rate: float, steps: float, end: float = 0.0) -> Any:
    """start · rate^(count / steps), never past ``end``."""
    if start <= 0.0 or rate <= 0.0:
        raise ConfigError(f"start={start}, rate={rate} arrived; an exponential schedule needs both above 0.")
    x = _real(count)
    value = start * ops(x).exp(math.log(rate) / steps * x)
    return _like(count, ops(x).minimum(value, end) if rate > 1.0 and end else ops(x).maximum(value, end))


def cosine(count: Any, start: float, end: float, steps: float, begin: float = 0.0) -> Any:
    """end + ½ · (start − end) · (1 + cos(π · progress)): flat at both ends."""
    x = _real(count)
    return _like(count, end + 0.5 * (start - end) * (1.0 + ops(x).cos(math.pi * _progress(x, begin, steps))))


def piecewise(count: Any, boundaries: Sequence[float], values: Sequence[float]) -> Any:
    """values[i] from boundaries[i-1] on: one value more than there are boundaries."""
    if len(values) != len(boundaries) + 1 or list(boundaries) != sorted(boundaries):
        raise ConfigError(
            f"{len(boundaries)} boundaries {list(boundaries)} and {len(values)} values arrived; "
            "boundaries must rise, and there must be one value more than boundaries."
        )
    x = _real(count)
    xp = ops(x)
    result = values[0] + xp.zeros_like(x)
    for boundary, value in zip(boundaries, values[1:]):
        result = xp.where(x >= boundary, value + xp.zeros_like(x), result)
    return _like(count, result)


def warmup(count: Any, steps: float) -> Any:
    """From 1 / steps up to 1 in a straight line: a factor for another schedule."""
    x = _real(count)
    return _like(count, ops(x).minimum((x + 1.0) / max(steps, 1.0), 1.0))


def importance_weights(probability: Any, size: Any, beta: Any) -> Any:
    """(size · P(i))^−β, divided by the largest of the batch: what prioritised sampling must be multiplied by."""
    xp = ops(probability)
    weight = xp.exp(-beta * xp.log(size * probability))  # [B]
    return weight / xp.max(weight, axis=-1, keepdims=True)  # [B]


def _real(count: Any) -> Any:
    """The count as a float array: double precision for a Python number, float32 for an array."""
    if isinstance(count, (int, float)):
        return np.float64(count)
    xp = ops(count)
    return xp.astype(count, xp.float32)


def _like(count: Any, value: Any) -> Any:
    return float(value) if isinstance(count, (int, float)) else value


def _progress(x: Any, begin: float, steps: float) -> Any:
    """0 at ``begin``, 1 from ``begin + steps`` on."""
    xp = ops(x)
    return xp.minimum(xp.maximum((x - begin) / max(steps, 1e-9), 0.0), 1.0)
