"""Device maps: which part of a graph lives on which device."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from starling.backends import Backend
from starling.components.base import Component
from starling.components.graph.assembly import instrument
from starling.core.errors import ConfigError
from starling.core.params import Params, with_scopes
from starling.core.trees import map_leaves

__all__ = ["DeviceMap"]

_SCALARS = (bool, int, float, str, type(None))


class DeviceMap:
    """Scopes and their devices, ``{"policy": "cpu:0", "value": "cpu:1"}``; ``*`` stands for the rest."""

    def __init__(self, backend: Backend, devices: Mapping[str, str], scopes: Collection[str]) -> None:
        for scope, device in devices.items():
            backend.check_device(device)
            if scope != "*" and scope not in scopes:
                raise ConfigError(f"device_map names scope {scope!r}; the scopes are: {', '.join(sorted(scopes))}.")
        self._backend = backend
        self._devices = {"" if scope == "*" else scope: device for scope, device in devices.items()}

    def __bool__(self) -> bool:
        return bool(self._devices)

    @property
    def several(self) -> bool:
        """Whether arrays live on more than one device."""
        return len({*self._devices.values(), self.home("")}) > 1

    def of(self, path: str) -> str | None:
        """The device of the longest scope that ``path`` is in; None where no scope says."""
        scopes = [s for s in self._devices if not s or path == s or path.startswith(s + ".")]
        return self._devices[max(scopes, key=len)] if scopes else None

    def through(self, path: str) -> str | None:
        """The device of the longest scope that ``path`` runs through: ``q`` in ``optimiser.mean.q.torso.w0``."""
        scopes = [s for s in self._devices if not s or f".{s}." in f".{path}."]
        return self._devices[max(scopes, key=len)] if scopes else None

    def home(self, path: str) -> str:
        """The device of ``path``, the backend's first one where no scope says."""
        return self.of(path) or self._backend.devices()[0]

    def spread(self, root: Component) -> Component:
        """The root with every component's arguments moved to its device, and its result to its caller's."""

        def around(component: Component, path: str, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
            names = [n for n in inspect.signature(method).parameters if n != "self"]
            here, caller = self.home(path), self.home(path.rpartition(".")[0])

            def moved(self_: Component, *args: Any, **kwargs: Any) -> Any:
                named = dict(zip(names, args))
                args = tuple(self._argument(n, value, here) for n, value in named.items()) + args[len(named) :]
                kwargs = {n: self._argument(n, value, here) for n, value in kwargs.items()}
                result = method(self_, *args, **kwargs)
                return result if here == caller else self._move(result, caller)

            return moved

        return instrument(root, around)

    def entered(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """``fn`` with the NumPy arrays among its arguments made arrays of the backend, as compiled functions do."""

        def enter(leaf: Any) -> Any:
            is_numpy = isinstance(leaf, (np.ndarray, np.generic))
            return self._backend.from_numpy(np.asarray(leaf), self.home("")) if is_numpy else leaf

        return lambda *args: fn(*map_leaves(enter, args))

    def _argument(self, name: str, value: Any, device: str) -> Any:
        # Parameters stay where their scopes are: a component hands them on to its parts.
        return with_scopes(value, Params) if name in ("p", "target") else self._move(value, device)

    def _move(self, value: Any, device: str) -> Any:
        if isinstance(value, dict):
            return type(value)((key, self._move(child, device)) for key, child in value.items())
        if isinstance(value, (tuple, list)):
            return type(value)(self._move(child, device) for child in value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
            return dataclasses.replace(value, **self._move(fields, device))
        if isinstance(value, (np.ndarray, np.generic)):
            return self._backend.from_numpy(np.asarray(value), device)
        return value if isinstance(value, _SCALARS) else self._backend.place(value, device)
