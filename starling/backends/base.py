"""What a backend is."""

from __future__ import annotations

import importlib
import importlib.util
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from starling.backends.dispatch import Ops
from starling.core.errors import ConfigError, MissingExtraError, UnknownNameError
from starling.core.params import Params
from starling.core.trees import Tree, map_leaves

__all__ = ["NAMES", "Backend", "available", "get_backend"]

NAMES = ("numpy", "jax", "torch")


class Backend(ABC):
    """A framework: its array namespace, its compiler, its devices.

    backend = get_backend("jax")
    step = backend.compile(lambda params, x: ops(x).sum(x @ params["w"]))
    backend.to_numpy(step(backend.from_numpy(params), x))
    """

    name: str
    ops: Ops
    scope_type: type = Params  # what holds parameters between calls

    @abstractmethod
    def from_numpy(self, tree: Tree, device: str | None = None) -> Tree:
        """The tree with arrays of this backend, on ``device``; no copy where the framework allows it."""

    @abstractmethod
    def array(self, leaf: Any) -> np.ndarray:
        """One array as a NumPy array; no copy where the framework allows it."""

    def to_numpy(self, tree: Tree) -> Tree:
        """The tree with NumPy arrays; no copy where the framework allows it."""
        return map_leaves(self.array, tree)

    @abstractmethod
    def compile(self, fn: Callable[..., Any], donate: Sequence[int] = ()) -> Callable[..., Any]:
        """``fn`` made fast; its arguments may be NumPy trees.

        ``donate`` numbers the arguments whose memory the results may take over: the caller must not use them again.
        """

    @abstractmethod
    def devices(self) -> list[str]:
        """The names of the devices, such as ``cpu:0``; the first is the default."""

    @abstractmethod
    def place(self, tree: Tree, device: str) -> Tree:
        """Arrays of this backend moved to ``device``, inside a computation too; gradients flow through."""

    @abstractmethod
    def prefer_one_thread(self) -> None:
        """A hint that computations will be small: handing them to other threads costs more than it saves."""

    def check_device(self, device: str) -> None:
        """Refuse a device that is not there."""
        if device not in self.devices():
            raise ConfigError(f"device {device!r} is not there; {self.name} sees: {', '.join(self.devices())}.")


_loaded: dict[str, Backend] = {}


def get_backend(name: str) -> Backend:
    """The backend called ``name``; its framework is imported on the first call."""
    if name not in _loaded:
        if name not in NAMES:
            raise UnknownNameError("backend", name, NAMES)
        if importlib.util.find_spec(name) is None:
            raise MissingExtraError(name, name)
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads of PyTorch that wait sleep, and do not spin
        _loaded[name] = importlib.import_module(f"starling.backends.{name}").backend
    return _loaded[name]


def available() -> list[str]:
    """The names of the backends whose framework is installed."""
    return [name for name in NAMES if importlib.util.find_spec(name) is not None]
