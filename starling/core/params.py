"""Parameters: the plain tree that a component reads its own part of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["Initialiser", "Params"]

Initialiser = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


class Params(dict[str, Any]):
    """A scope of the parameter tree: ``p.get`` reads a parameter, ``p.child`` a sub-component's scope.

    It is a dict and nothing more, so that reading costs a look-up. While a graph is assembled its place is
    taken by a scope that creates each parameter the first time it is asked for (``components.graph``).
    """

    __slots__ = ()
    __getattr__ = dict.__getitem__

    def get(self, name: str, shape: tuple[int, ...] = (), init: Initialiser | None = None) -> Any:  # type: ignore[override]
        return self[name]
