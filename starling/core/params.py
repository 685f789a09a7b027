"""Parameters: the plain tree that a component reads its own part of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

__all__ = ["Initialiser", "NoSuchParameter", "Params", "with_scopes"]

Initialiser = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


class NoSuchParameter(KeyError, AttributeError):
    """A name that a scope does not have; both errors, because scopes are read as dicts and as attributes."""


class Params(dict[str, Any]):
    """A scope of the parameter tree: ``p.get`` reads a parameter, ``p.child`` a sub-component's scope.

    It is a dict and nothing more, so that reading costs a look-up. While a graph is assembled its place is
    taken by a scope that creates each parameter the first time it is asked for (``components.graph``).
    """

    __slots__ = ()

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...
    else:
        __getattr__ = dict.__getitem__

    def __missing__(self, name: str) -> Any:
        raise NoSuchParameter(f"no parameter or scope {name!r} here; there are: {', '.join(sorted(self)) or 'none'}")

    def get(self, name: str, shape: tuple[int, ...] = (), init: Initialiser | None = None) -> Any:  # type: ignore[override]
        return self[name]


def with_scopes(tree: Any, kind: type, leaf: Callable[[Any], Any] | None = None) -> Any:
    """The tree with every dict of the given kind: ``Params`` for a component to read, or a plain ``dict``.

    Its leaves are what ``leaf`` makes of them.
    """
    if isinstance(tree, dict):
        return kind({key: with_scopes(child, kind, leaf) for key, child in tree.items()})
    if isinstance(tree, (tuple, list)):
        children = [with_scopes(child, kind, leaf) for child in tree]
        return type(tree)(*children) if hasattr(tree, "_fields") else type(tree)(children)
    return tree if leaf is None or tree is None else leaf(tree)
