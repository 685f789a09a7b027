"""Means of trees of arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from starling.core.trees import Tree, map_leaves

__all__ = ["weighted_mean"]


def weighted_mean(offers: list[tuple[Tree, float]]) -> Tree:
    """Σ wᵢ·vᵢ / Σ wᵢ, leaf by leaf, always in the same order; equal weights give the plain mean, to the bit."""
    weights = [weight for _, weight in offers]
    plain = all(weight == weights[0] for weight in weights)
    divisor = float(len(weights) if plain else math.fsum(weights))

    def mean(*leaves: Any) -> Any:
        parts = [np.asarray(leaf) for leaf in leaves]
        if not plain:
            dtype = np.result_type(parts[0].dtype, np.float16)
            parts = [part * np.asarray(weight, dtype) for part, weight in zip(parts, weights)]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total / np.asarray(divisor, total.dtype)

    return map_leaves(mean, offers[0][0], *(value for value, _ in offers[1:]))
