"""How large networks and learners are, before any array of them is made."""

from __future__ import annotations

import math

import numpy as np

from starling.algorithms.base import Algorithm
from starling.algorithms.compiled.policy import acting_scopes
from starling.components.graph.assembly import Assembly
from starling.components.graph.build import parameter_tree
from starling.core.trees import items

__all__ = ["acting_bytes", "state_bytes"]

SIZE = np.dtype(np.float32).itemsize


def acting_bytes(assembly: Assembly) -> int:
    """Bytes of the parameters that acting reads."""
    scopes = acting_scopes(assembly)
    return sum(size for path, size in _sizes(assembly).items() if path.split(".")[0] in scopes)


def state_bytes(assembly: Assembly) -> int:
    """Bytes of a learner's state: its parameters, their slow copies and its optimisers' slots.

    The state is made of parameters of one number each; what lies under a parameter's path has its size.
    """
    sizes = _sizes(assembly)
    algorithm: Algorithm = assembly.root  # type: ignore[assignment]
    tiny = parameter_tree(assembly, lambda path, spec: np.zeros(1, np.float32))
    state = algorithm.init(tiny)
    return sum(_size_at(path, sizes) for path, _ in items(state))


def _sizes(assembly: Assembly) -> dict[str, int]:
    return {path: SIZE * math.prod(spec.shape) for path, spec in assembly.parameters.items()}


def _size_at(path: str, sizes: dict[str, int]) -> int:
    """The bytes of a leaf of a state: those of the parameter whose path its own ends with."""
    parts = path.split(".")
    tails = (".".join(parts[first:]) for first in range(len(parts)))
    return next((sizes[tail] for tail in tails if tail in sizes), SIZE)
