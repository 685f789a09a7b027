"""Build: create the parameters of an assembly and compile root APIs for a backend."""

from __future__ import annotations

import fnmatch
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from starling.backends import Backend, capture, capturing, ops
from starling.components.base import Component
from starling.components.graph.assembly import Assembly, instrument
from starling.components.graph.devices import DeviceMap
from starling.components.networks.modules import check_modules
from starling.core.errors import ConfigError
from starling.core.params import Params, with_scopes
from starling.core.random import stream
from starling.core.trees import Tree, items, leaves, map_with_path, opened, refilled

__all__ = ["BuildStats", "Graph", "build", "create_parameters", "cutter"]


@dataclass(frozen=True)
class BuildStats:
    """What building took and what it made."""

    seconds: float  # assembling and creating parameters; compilation happens at an API's first call
    parameters: int
    flops: dict[str, float]  # forward floating-point operations of each root API at ``batch`` (and ``time``) below
    batch: int = 13
    time: int = 11


class Graph:
    """A root component on a backend: its initial parameters and its compiled APIs.

    act = graph.function("act")
    action = act(graph.parameters(), obs, noise)
    """

    def __init__(
        self, assembly: Assembly, backend: Backend, params: Params, devices: DeviceMap, stats: BuildStats
    ) -> None:
        self.root, self.assembly, self.backend = assembly.root, assembly, backend
        self.initial, self.stats = params, stats
        self._devices = devices

    def parameters(self) -> Params:
        """The initial parameters as arrays of the backend, each on its device."""
        return self.place(self.initial)

    def place(self, tree: Tree) -> Tree:
        """A NumPy tree of parameters, or a learner's state with such trees inside, as arrays of the backend.

        Each goes to the device of the scope that its path runs through.
        """
        if not self._devices:
            return with_scopes(self.backend.from_numpy(tree), self.backend.scope_type)
        placed = map_with_path(lambda path, leaf: self.backend.from_numpy(leaf, self._devices.through(path)), tree)
        return with_scopes(placed, self.backend.scope_type)

    def joined(self, tree: Tree) -> Any:
        """A copy of all leaves, one after the other, as one vector; ``cutter`` makes the way back."""
        flat = leaves(tree)
        if self._devices.several:
            flat = [self.backend.place(leaf, self._devices.home("")) for leaf in flat]
        xp = ops(flat[0])
        return xp.concat([xp.reshape(leaf, (-1,)) for leaf in flat])

    def function(
        self,
        api: str,
        donate: Sequence[int] = (),
        summaries: Sequence[str] = (),
        then: Callable[[Any], Any] | None = None,
    ) -> Callable[..., Any]:
        """The root's ``api``, compiled, and what ``then`` makes of its result in the same program.

        With ``summaries`` it returns (result, {name: value}). A summary names values by component path and API,
        ``torso.__call__`` or ``q.q_values``; ``*`` matches any.
        """
        root = self._devices.spread(self.root) if self._devices.several else self.root
        call = getattr(_observed(root, summaries) if summaries else root, api)
        whole = call if then is None else lambda *args: then(call(*args))
        if not summaries:
            return self._compile(whole, donate)

        def run(*args: Any) -> tuple[Any, dict[str, Any]]:
            with capturing() as values:
                result = whole(*args)
            return result, values

        return self._compile(run, donate)

    def _compile(self, fn: Callable[..., Any], donate: Sequence[int]) -> Callable[..., Any]:
        # Arrays on several devices cannot enter one compiled program.
        return self._devices.entered(fn) if self._devices.several else self.backend.compile(fn, donate)


def cutter(like: Tree) -> Callable[[np.ndarray], Tree]:
    """What makes of a joined tree, as a NumPy vector, the tree again: views with the names and shapes of ``like``."""
    shapes = [leaf.shape for leaf in leaves(like)]
    ends = list(itertools.accumulate(math.prod(shape) for shape in shapes))
    places = list(zip([0, *ends], ends, shapes))
    return lambda vector: refilled(like, (vector[start:end].reshape(shape) for start, end, shape in places))


def build(assembly: Assembly, backend: Backend, seed: int = 0, device_map: Mapping[str, str] | None = None) -> Graph:
    """Create the parameters of ``assembly`` and prepare its root for ``backend``.

    ``device_map`` puts scopes on devices, ``{"policy": "cpu:0", "value": "cpu:1"}``; ``*`` stands for the rest.
    """
    started = time.perf_counter()
    check_modules(assembly.root, backend.name)
    devices = DeviceMap(backend, device_map or {}, assembly.scopes)
    params = create_parameters(assembly, seed)
    flops = {call.api: call.flops for call in assembly.calls if call.parent is None}
    seconds = assembly.seconds + time.perf_counter() - started
    return Graph(assembly, backend, params, devices, BuildStats(seconds, assembly.parameter_count, flops))


def create_parameters(assembly: Assembly, seed: int) -> Params:
    """The initial parameters: each drawn from the stream of its own path, so its value depends on nothing else."""
    root = Params()
    for scope in sorted(assembly.scopes - {""}):
        node = root
        for name in scope.split("."):
            node = node.setdefault(name, Params())
    for path, spec in assembly.parameters.items():
        value = spec.init(stream(seed, "init", path), spec.shape)
        if value.shape != spec.shape:
            raise ConfigError(f"the initialiser of {path!r} made shape {value.shape}; {spec.shape} was asked for.")
        *scopes, name = path.split(".")
        node = root
        for scope in scopes:
            node = node[scope]
        node[name] = np.array(value, dtype=np.float32, order="C")
    return root


def _observed(root: Component, patterns: Sequence[str]) -> Component:
    """The root with the results of matching APIs captured."""

    def around(component: Component, path: str, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        title = f"{path}.{name}" if path else name
        if not any(fnmatch.fnmatch(title, pattern) for pattern in patterns):
            return method

        def watched(self: Component, *args: Any, **kwargs: Any) -> Any:
            result = method(self, *args, **kwargs)
            for leaf_path, leaf in items(opened(result)):
                capture(f"{title}.{leaf_path}" if leaf_path else title, leaf)
            return result

        return watched

    return instrument(root, around)
