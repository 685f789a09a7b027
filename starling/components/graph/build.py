"""Build: create the parameters of an assembly and compile root APIs for a backend."""

from __future__ import annotations

import fnmatch
import inspect
import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from starling.backends import Backend, capture, capturing, ops
from starling.components.base import Component
from starling.components.graph.assembly import Assembly, ParameterSpec, instrument
from starling.components.graph.shapes import batch_axis, ranked_space
from starling.components.networks.modules import check_modules
from starling.core.errors import ConfigError
from starling.core.params import Params, with_scopes
from starling.core.random import stream
from starling.core.trees import Tree, items, leaves, opened, refilled

__all__ = ["BuildStats", "Graph", "build", "create_parameters", "cutter", "parameter_tree"]


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
        self, assembly: Assembly, backend: Backend, params: Params, devices: Sequence[str], stats: BuildStats
    ) -> None:
        self.root, self.assembly, self.backend = assembly.root, assembly, backend
        self.initial, self.devices, self.stats = params, tuple(devices), stats
        self._joins: dict[tuple[str, ...], Callable[[Tree], Any]] = {}

    def parameters(self) -> Params:
        """The initial parameters as arrays of the backend, on the graph's devices."""
        return self.place(self.initial)

    def place(self, tree: Tree) -> Tree:
        """A copy of a NumPy tree of parameters, or of a learner's state, as arrays on the graph's devices."""
        return self.scoped(self.backend.from_numpy(tree, self.devices))

    def scoped(self, tree: Tree) -> Tree:
        """The tree with the backend's kind of dict everywhere: compiled functions are compiled anew for another."""
        return with_scopes(tree, self.backend.scope_type)

    def init(self, params: Params) -> Tree:
        """The root's first state with these NumPy parameters, every array of it on the graph's devices."""
        root: Any = self.root
        state = self.backend.from_numpy(root.init(params), self.devices)
        return self.scoped(state) if self.backend.scope_type is dict else state

    def joined(self, tree: Tree) -> Any:
        """A copy of all leaves, one after the other, as one vector; ``cutter`` makes the way back."""
        flat = leaves(tree)
        xp = ops(flat[0])
        return xp.concat([xp.reshape(leaf, (-1,)) for leaf in flat])

    def fetch(self, params: Tree) -> Params:
        """Parameters as NumPy arrays of their own, in one transfer from a device with a memory of its own."""
        if self.backend.on_host(self.devices):
            return with_scopes(params, Params, lambda leaf: np.array(self.backend.array(leaf)))
        paths = tuple(path for path, _ in items(params))
        if not paths:
            return with_scopes(params, Params)
        if paths not in self._joins:
            self._joins[paths] = self.backend.compile(self.joined, devices=self.devices)
        vector = np.require(self.backend.array(self._joins[paths](self.scoped(params))), requirements="W")
        return cutter(with_scopes(params, Params))(vector)

    def function(
        self,
        api: str,
        donate: Sequence[int] = (),
        summaries: Sequence[str] = (),
        then: Callable[[Any], Any] | None = None,
        split: Sequence[str] = ("batch", "draws"),
    ) -> Callable[..., Any]:
        """The root's ``api``, compiled, and what ``then`` makes of its result in the same program.

        With ``summaries`` it returns (result, {name: value}). A summary names values by component path and API,
        ``torso.__call__`` or ``q.q_values``; ``*`` matches any. Several devices share the rows of the arguments in
        ``split``, each called as the root's input whose space it has.
        """
        root = self._spread() if len(self.devices) > 1 and split else self.root
        call = getattr(_observed(root, summaries) if summaries else root, api)
        whole = call if then is None else lambda *args: then(call(*args))

        def run(*args: Any) -> tuple[Any, dict[str, Any]]:
            with capturing() as values:
                result = whole(*args)
            return result, values

        names = inspect.signature(getattr(self.root, api)).parameters
        shared = [self.assembly.inputs.get(name) if name in split else None for name in names]
        return self.backend.compile(run if summaries else whole, donate, self.devices, shared)

    def _spread(self) -> Component:
        """The root with its losses computed by all devices, each from its share of the rows."""

        def around(component: Component, path: str, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
            if path or not _is_loss(self.assembly, name):
                return method
            arguments, signature = self.assembly.arguments[name], inspect.signature(method)
            spaces = [ranked_space(arguments.get(argument)) for argument in list(signature.parameters)[1:]]
            found = items(opened(self.assembly.outputs[name]))
            axes = {path: axis for path, leaf in found if (axis := batch_axis(leaf)) is not None}

            def spread(root: Component, *args: Any, **kwargs: Any) -> Any:
                given = signature.bind(root, *args, **kwargs).args[1:]
                return self.backend.spread(partial(method, root), self.devices, spaces[: len(given)], axes)(*given)

            return spread

        return instrument(self.root, around)


def _is_loss(assembly: Assembly, api: str) -> bool:
    """Whether a root API makes a number of a batch: what a gradient is taken of."""
    output = assembly.outputs.get(api)
    if not isinstance(output, tuple) or not isinstance(output[0], np.ndarray) or output[0].shape:
        return False
    return any(batch_axis(leaf) is not None for _, leaf in items(opened(assembly.arguments[api])))


def cutter(like: Tree) -> Callable[[np.ndarray], Tree]:
    """What makes of a joined tree, as a NumPy vector, the tree again: views with the names and shapes of ``like``."""
    shapes = [leaf.shape for leaf in leaves(like)]
    ends = list(itertools.accumulate(math.prod(shape) for shape in shapes))
    places = list(zip([0, *ends], ends, shapes))
    return lambda vector: refilled(like, (vector[start:end].reshape(shape) for start, end, shape in places))


def build(assembly: Assembly, backend: Backend, seed: int = 0, devices: Sequence[str] = ()) -> Graph:
    """Create the parameters of ``assembly`` and prepare its root for ``backend`` on ``devices``.

    Parameters and what a call is given are moved to the device. Several devices hold the parameters each and share the
    rows of a batch: the result is that of one device. Without ``devices`` it is the backend's default.
    """
    started = time.perf_counter()
    check_modules(assembly.root, backend.name)
    backend.check_devices(devices)
    params = create_parameters(assembly, seed)
    flops = {call.api: call.flops for call in assembly.calls if call.parent is None}
    seconds = assembly.seconds + time.perf_counter() - started
    return Graph(assembly, backend, params, devices, BuildStats(seconds, assembly.parameter_count, flops))


def create_parameters(assembly: Assembly, seed: int) -> Params:
    """The initial parameters: each drawn from the stream of its own path, so its value depends on nothing else."""

    def create(path: str, spec: ParameterSpec) -> np.ndarray:
        value = spec.init(stream(seed, "init", path), spec.shape)
        if value.shape != spec.shape:
            raise ConfigError(f"the initialiser of {path!r} made shape {value.shape}; {spec.shape} was asked for.")
        return np.array(value, dtype=np.float32, order="C")

    return parameter_tree(assembly, create)


def parameter_tree(assembly: Assembly, make: Callable[[str, ParameterSpec], Any]) -> Params:
    """A tree in the form of the parameters, each made from its path and description; empty scopes are there, too."""
    root = Params()
    for scope in sorted(assembly.scopes - {""}):
        node = root
        for name in scope.split("."):
            node = node.setdefault(name, Params())
    for path, spec in assembly.parameters.items():
        *scopes, name = path.split(".")
        node = root
        for scope in scopes:
            node = node[scope]
        node[name] = make(path, spec)
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
