"""What a backend is.

**Memory that was passed to a compiled function belongs to the backend until the result is there.** A compiled function
may return before it has read its arguments: ``jax.jit`` on the CPU reads NumPy arrays in place, where they are aligned
to 64 bytes, after the call. Whoever writes to such memory again (a rollout's arrays, a slot in shared memory) waits:

    state, metrics = update(state, batch, draws)
    backend.wait(metrics)                          # from here on ``batch`` may be written again

``from_numpy`` needs no waiting: it has copied when it returns. A result that is one of the arguments, unchanged, may
share its memory however long one waits.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from starling.backends.dispatch import Ops
from starling.core.errors import ConfigError, MissingExtraError, UnknownNameError
from starling.core.params import Params
from starling.core.spaces import Space
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
    def from_numpy(self, tree: Tree, devices: Sequence[str] = ()) -> Tree:
        """A copy of the tree with arrays of this backend: no later write to the NumPy arrays changes it.

        Of several ``devices`` every one can read it: each holds a copy, or gets one when it needs it.
        """

    @abstractmethod
    def array(self, leaf: Any) -> np.ndarray:
        """One array as a NumPy array; no copy where the framework allows it."""

    def to_numpy(self, tree: Tree) -> Tree:
        """The tree with NumPy arrays; no copy where the framework allows it."""
        return map_leaves(self.array, tree)

    @abstractmethod
    def compile(
        self,
        fn: Callable[..., Any],
        donate: Sequence[int] = (),
        devices: Sequence[str] = (),
        shared: Sequence[Space | None] = (),
    ) -> Callable[..., Any]:
        """``fn`` made fast; its arguments may be NumPy trees, which are moved to ``devices``.

        ``donate`` numbers the arguments whose memory the results may take over: the caller must not use them again.
        ``shared`` has the space of each argument that is a batch for several devices to share, None for the others.
        """

    @abstractmethod
    def spread(
        self,
        loss: Callable[..., Any],
        devices: Sequence[str],
        spaces: Sequence[Space | None],
        axes: Mapping[str, int],
    ) -> Callable[..., Any]:
        """``loss``, a mean over the rows of a batch, computed by several devices from a share of the rows each.

        ``spaces`` has the space of each argument with rows, ``axes`` the batch axis of each array with rows in the
        result, by path; the others are averaged, weighted by the rows that count.
        """

    @abstractmethod
    def wait(self, tree: Tree) -> None:
        """Return when everything that the arrays of ``tree`` were computed from may be written again."""

    @abstractmethod
    def devices(self) -> list[str]:
        """The names of the devices, such as ``cpu:0``; the first is the default."""

    def on_host(self, devices: Sequence[str] = ()) -> bool:
        """Whether these devices, else the default one, share the host's memory: copying from there is no transfer."""
        return all(device.startswith("cpu") for device in devices or self.devices()[:1])

    @abstractmethod
    def prefer_one_thread(self) -> None:
        """A hint that computations will be small: handing them to other threads costs more than it saves."""

    @abstractmethod
    def sees(self, device: str) -> bool:
        """Whether there is such a device."""

    def check_devices(self, devices: Sequence[str]) -> None:
        """Refuse devices that are not there, or that cannot share a batch."""
        for device in devices:
            if not self.sees(device):
                seen = ", ".join(self.devices())
                raise ConfigError(f"device {device!r} is not there; {self.name} sees: {seen}. Name one of these.")
            if list(devices).count(device) > 1:
                raise ConfigError(f"device {device!r} is named twice in {', '.join(devices)}; name each device once.")
        if len({device.partition(":")[0] for device in devices}) > 1:
            raise ConfigError(f"{', '.join(devices)} are of several kinds; devices that share a batch are of one kind.")


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
