"""``ops(x)``: from an array to the namespace that computes with it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

__all__ = ["Ops", "ops", "register_ops"]


class Ops(SimpleNamespace):
    """A namespace of array functions: the array API standard plus ``backends.extras``."""

    def __getattr__(self, name: str) -> Any:  # only reached for a name that is not there
        raise AttributeError(f"{name!r} is not an operation every backend has; see starling/backends/extras.py.")


_by_type: dict[type, Ops] = {}


def register_ops(array_type: type, namespace: Ops) -> None:
    """Let ``ops`` answer ``namespace`` for arrays of ``array_type`` and its subclasses."""
    _by_type[array_type] = namespace


def ops(x: Any) -> Ops:
    """The namespace of an array."""
    try:
        return _by_type[type(x)]
    except KeyError:
        return _look_up(type(x))


def _look_up(array_type: type) -> Ops:
    from starling.backends.base import get_backend

    for framework in ("jax", "torch", "numpy"):
        if any(base.__module__.split(".")[0].startswith(framework) for base in array_type.__mro__):
            get_backend(framework)  # an array made elsewhere: its backend may not be loaded yet
    for base in array_type.__mro__:
        if base in _by_type:
            _by_type[array_type] = _by_type[base]
            return _by_type[base]
    raise TypeError(f"{array_type.__name__} is not an array of any backend; expected a NumPy, JAX or PyTorch array.")
