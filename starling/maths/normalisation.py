"""Running statistics, reward scaling, and the rescaling of values.

Statistics are a tree {"count", "mean", "m2"}: how many rows were seen, their mean, and the sum of their squared
distances from it. Two such trees merge exactly, so actors can gather apart and learners add up.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from starling.backends import ops

__all__ = [
    "empty_moments",
    "merge_moments",
    "moments_from_sums",
    "moments_of",
    "moments_std",
    "normalise",
    "rescale_value",
    "standardise",
    "sums_of_moments",
    "unscale_value",
    "update_moments",
]

Moments = dict[str, Any]


def empty_moments(shape: tuple[int, ...] = ()) -> Moments:
    """Statistics of nothing yet, as NumPy arrays."""
    zeros = np.zeros(shape, np.float32)
    return {"count": np.zeros((), np.float32), "mean": zeros, "m2": zeros.copy()}


def moments_of(x: Any, ranks: int = 1, weight: Any = None) -> Moments:
    """The statistics of one batch over its first ``ranks`` axes, computed around its own mean.

    ``weight`` has these axes: 1 for the rows that count, 0 for the others.
    """
    xp = ops(x)
    axes = tuple(range(ranks))
    if weight is None:
        mean = xp.mean(x, axis=axes)  # [...]
        m2 = xp.sum(xp.square(x - mean), axis=axes)  # [...]
        return {"count": xp.full((), float(math.prod(x.shape[:ranks])), dtype=x.dtype), "mean": mean, "m2": m2}
    count = xp.sum(weight)
    weight = xp.reshape(weight, (*weight.shape, *(1 for _ in x.shape[ranks:])))
    mean = xp.sum(weight * x, axis=axes) / xp.maximum(count, 1.0)  # [...]
    return {"count": count, "mean": mean, "m2": xp.sum(weight * xp.square(x - mean), axis=axes)}


def merge_moments(a: Moments, b: Moments, limit: float = 1e7) -> Moments:
    """Both together (Chan et al.): mean + δ · n_b / n and m2_a + m2_b + δ² · n_a · n_b / n.

    Past ``limit`` rows old ones fade: a float32 count that could no longer grow would let the variance drift.
    """
    xp = ops(a["mean"])
    count = a["count"] + b["count"]
    total = xp.maximum(count, 1.0)
    share = b["count"] / total  # in (0, 1]: the weight of b
    delta = b["mean"] - a["mean"]
    mean = a["mean"] + delta * share
    m2 = a["m2"] + b["m2"] + xp.square(delta) * (a["count"] * share)
    fade = xp.minimum(limit / total, 1.0)
    return {"count": count * fade, "mean": mean, "m2": m2 * fade}


def update_moments(moments: Moments, x: Any, ranks: int = 1) -> Moments:
    """``moments`` with the rows of ``x`` added."""
    return merge_moments(moments, moments_of(x, ranks))


def moments_std(moments: Moments, epsilon: float = 1e-8) -> Any:
    """√(m2 / count + ε); one where nothing was seen yet."""
    xp = ops(moments["m2"])
    count = moments["count"]
    variance = moments["m2"] / xp.maximum(count, 1.0)
    return xp.where(count > 0.0, xp.sqrt(variance + epsilon), xp.ones_like(variance))


def normalise(x: Any, moments: Moments, clip: float = 10.0, epsilon: float = 1e-8) -> Any:
    """(x − mean) / std, kept within ±clip."""
    xp = ops(x)
    return xp.clip((x - moments["mean"]) / moments_std(moments, epsilon), -clip, clip)


def standardise(x: Any, epsilon: float = 1e-8) -> Any:
    """A batch moved to mean 0 and standard deviation 1, over all its axes: advantages, as PPO takes them."""
    xp = ops(x)
    centred = x - xp.mean(x)
    return centred / (xp.sqrt(xp.mean(xp.square(centred))) + epsilon)


def rescale_value(x: Any, epsilon: float = 1e-3) -> Any:
    """h(x) = sign(x) · (√(|x| + 1) − 1) + ε · x.

    √(a + 1) − 1 = a / (√(a + 1) + 1) loses no digits near zero, and has the right slope at it.
    """
    xp = ops(x)
    return x / (xp.sqrt(xp.abs(x) + 1.0) + 1.0) + epsilon * x


def unscale_value(x: Any, epsilon: float = 1e-3) -> Any:
    """h⁻¹(x), exactly.

    With y = √(|v| + 1) − 1 the equation h(v) = x is ε y² + (1 + 2ε) y = |x|; its positive root, written without a
    difference, keeps float32's digits for small and large x, and for ε = 0.
    """
    xp = ops(x)
    linear = 1.0 + 2.0 * epsilon
    y = 2.0 * x / (linear + xp.sqrt(linear * linear + 4.0 * epsilon * xp.abs(x)))
    return y * (xp.abs(y) + 2.0)


def sums_of_moments(tree: Any) -> Any:
    """Trees of moments as sums that add up, in double precision: {count, Σx, Σx²}."""
    if isinstance(tree, dict) and set(tree) == {"count", "mean", "m2"}:
        count, mean, m2 = (np.asarray(tree[name], np.float64) for name in ("count", "mean", "m2"))
        return {"count": count, "mean": count * mean, "m2": m2 + count * mean * mean}
    return {name: sums_of_moments(child) for name, child in tree.items()}


def moments_from_sums(tree: Any) -> Any:
    """The way back from ``sums_of_moments``, in single precision."""
    if isinstance(tree, dict) and set(tree) == {"count", "mean", "m2"}:
        count = np.maximum(tree["count"], 1.0)
        mean = tree["mean"] / count
        m2 = np.maximum(tree["m2"] - tree["count"] * mean * mean, 0.0)
        return {
            "count": np.float32(tree["count"]),
            "mean": np.asarray(mean, np.float32),
            "m2": np.asarray(m2, np.float32),
        }
    return {name: moments_from_sums(child) for name, child in tree.items()}
