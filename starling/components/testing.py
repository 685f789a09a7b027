"""Build any component alone, from spaces, and call it. Meant for your own components too.

    test = ComponentTest(MLP((64, 2)), {"x": Float((4,)).ranked(batch=True)}, backend="jax")
    test.call("__call__", np.ones((5, 4)))                  # a NumPy array [5, 2]
    test.check("__call__", [x], expected, rtol=1e-5)        # raises AssertionError where they differ
    test.sample("__call__", batch=5)                        # on random inputs from the spaces
    test.params["w0"][:] = 0                                # or: test.params = {...}

``spaces`` gives the arguments of the APIs by name. An argument called as an earlier API takes that API's result, and
``target`` is another copy of the parameters. APIs whose arguments are not all known cannot be called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from starling.backends import get_backend
from starling.components.base import Component, apis
from starling.components.graph.assembly import assemble
from starling.components.graph.build import build
from starling.core.errors import ConfigError, SpaceError, UnknownNameError
from starling.core.params import Params, with_scopes
from starling.core.random import stream
from starling.core.spaces import Dict, Leaf, Space, Tuple
from starling.core.trees import Tree, items, map_leaves, opened

__all__ = ["ComponentTest"]


class ComponentTest:
    """A component, built; see the top of this file."""

    def __init__(
        self, component: Component, spaces: Mapping[str, Space], backend: str = "numpy", seed: int = 0
    ) -> None:
        self.component, self.spaces = component, dict(spaces)
        self.backend = get_backend(backend)
        self._rng = stream(seed, "component test")
        self._compiled: dict[str, Callable[..., Any]] = {}
        self._lacking = _lacking(component, self.spaces)
        _refuse_unused(component, self.spaces)
        self.assembly = assemble(component, self.spaces, only=[n for n in apis(component) if not self._lacking[n]])
        self.graph = build(self.assembly, self.backend, seed)
        self._params = self.graph.initial

    @property
    def params(self) -> Params:
        """The parameters every call uses, as NumPy arrays that may be written to."""
        return self._params

    @params.setter
    def params(self, params: Tree) -> None:
        params = _arrays(params)
        arrived = {path: leaf.shape for path, leaf in items(params)}
        expected = {path: spec.shape for path, spec in self.assembly.parameters.items()}
        for path in sorted({**arrived, **expected}):
            if arrived.get(path) != expected.get(path):
                raise SpaceError(
                    f"parameter {path!r}: {_shape(arrived, path)} arrived, {_shape(expected, path)} was expected."
                )
        self._params = with_scopes(_merged(self.graph.initial, params), Params)

    def call(self, api: str, *args: Any, **kwargs: Any) -> Tree:
        """The result of an API as NumPy arrays; ``args`` leaves out the parameters."""
        signature = inspect.signature(self._method(api))
        params, rest, ordered, given = self.graph.place(self._params), list(args), [], 0
        for name, argument in signature.parameters.items():
            if name in ("p", "target"):
                ordered.append(params)
            elif argument.kind is argument.VAR_POSITIONAL:
                ordered += [self.backend.from_numpy(map_leaves(np.asarray, value)) for value in rest]
                rest = []
            elif rest or name in kwargs:
                ordered.append(self._argument(name, rest.pop(0) if rest else kwargs.pop(name)))
            elif argument.default is not argument.empty:
                ordered.append(argument.default)
                continue
            else:
                raise ConfigError(f"{type(self.component).__name__}.{api} was called without {name!r}.")
            given = len(ordered)
        if rest or kwargs:
            raise ConfigError(
                f"{type(self.component).__name__}.{api}{signature} got {len(rest) + len(kwargs)} too many."
            )
        if api not in self._compiled:
            method = self._method(api)
            self._compiled[api] = self.backend.compile(lambda *values: opened(method(*values)))
        return self.backend.to_numpy(self._compiled[api](*ordered[:given]))  # defaults at the end stay the method's own

    def check(self, api: str, args: Sequence[Any], expected: Tree, rtol: float = 1e-5, atol: float = 1e-6) -> Tree:
        """Call an API and compare its result with ``expected``, leaf by leaf; returns the result."""
        result = self.call(api, *args)
        _compare(result, expected, api, rtol, atol)
        return result

    def sample(self, api: str, batch: int = 5, time: int = 7) -> Tree:
        """The result of an API on random inputs drawn from the spaces, with these sizes of the ranks."""
        drawn: dict[str, Any] = {}
        return self._sampled(api, {"batch": batch, "time": time}, drawn)

    def _sampled(self, api: str, sizes: dict[str, int], drawn: dict[str, Any]) -> Tree:
        chosen = {}
        for name, argument in inspect.signature(self._method(api)).parameters.items():
            if name in ("p", "target") or argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
                continue
            if name in self.spaces and name not in drawn:
                drawn[name] = _draw(self.spaces[name], self._rng, sizes)
            elif name not in drawn and name in apis(self.component):
                drawn[name] = self._sampled(name, sizes, drawn)
            if name in drawn:
                chosen[name] = drawn[name]
        return self.call(api, **chosen)

    def _method(self, api: str) -> Callable[..., Any]:
        if api not in self._lacking:
            raise UnknownNameError("API", api, self._lacking, type(self.component).__name__)
        if self._lacking[api]:
            raise ConfigError(
                f"{type(self.component).__name__}.{api} takes {self._lacking[api]!r}, which is not among the spaces: "
                f"{', '.join(self.spaces) or 'none'}."
            )
        method: Callable[..., Any] = getattr(self.component, api)
        return method

    def _argument(self, name: str, value: Any) -> Any:
        known = self.spaces.get(name)
        return self.backend.from_numpy(map_leaves(np.asarray, value) if known is None else _as_space(known, value))


def _lacking(component: Component, spaces: Mapping[str, Space]) -> dict[str, str]:
    """For each API, the first argument that nothing provides, or an empty string."""
    provided, found = {*spaces, "p", "target"}, {}
    for name in apis(component):
        wanted = inspect.signature(getattr(component, name)).parameters.values()
        needed = [a.name for a in wanted if a.default is a.empty and a.kind is a.POSITIONAL_OR_KEYWORD]
        found[name] = next((argument for argument in needed if argument not in provided), "")
        if not found[name]:
            provided.add(name)
    return found


def _refuse_unused(component: Component, spaces: Mapping[str, Space]) -> None:
    known = {a for name in apis(component) for a in inspect.signature(getattr(component, name)).parameters}
    for name in spaces:
        if name not in known:
            raise UnknownNameError(
                "argument", name, known - {"p", "target"}, f"the spaces of {type(component).__name__}"
            )


def _compare(found: Tree, expected: Any, what: str, rtol: float, atol: float) -> None:
    """Walk the result; a list in ``expected`` is an array wherever the result has one."""
    if isinstance(found, dict):
        if not isinstance(expected, Mapping) or set(found) != set(expected):
            keys = sorted(expected) if isinstance(expected, Mapping) else type(expected).__name__
            raise AssertionError(f"{what} has keys {sorted(found)}; {keys} was expected.")
        for key, child in found.items():
            _compare(child, expected[key], f"{what}.{key}", rtol, atol)
    elif isinstance(found, (tuple, list)):
        if not isinstance(expected, (tuple, list)) or len(found) != len(expected):
            raise AssertionError(f"{what} has {len(found)} values; {expected!r:.60} was expected.")
        for i, child in enumerate(found):
            _compare(child, expected[i], f"{what}.{i}", rtol, atol)
    elif found is None or expected is None or isinstance(expected, Mapping):
        if found is not expected:
            raise AssertionError(f"{what} is {found!r:.60}; {expected!r:.60} was expected.")
    elif np.shape(found) != np.shape(expected):
        raise AssertionError(f"{what} has shape {np.shape(found)}; {np.shape(expected)} was expected.")
    else:
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol, err_msg=what)


def _arrays(params: Any) -> Any:
    """Nested dicts of float32 arrays, copied."""
    if isinstance(params, Mapping):
        return {name: _arrays(child) for name, child in params.items()}
    return np.array(params, np.float32)


def _shape(shapes: Mapping[str, tuple[int, ...]], path: str) -> str:
    return f"shape {list(shapes[path])}" if path in shapes else "nothing"


def _merged(scopes: Any, params: Any) -> Any:
    """The parameters in the scopes of the graph: scopes without parameters are kept."""
    if not isinstance(scopes, dict):
        return params
    return {name: _merged(child, params.get(name, {})) for name, child in scopes.items()}


def _draw(space: Space, rng: np.random.Generator, sizes: Mapping[str, int]) -> Any:
    if isinstance(space, Dict):
        return {key: _draw(child, rng, sizes) for key, child in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(_draw(child, rng, sizes) for child in space.spaces)
    assert isinstance(space, Leaf)
    ranks = [name for name, there in (("time", space.time), ("batch", space.batch)) if there]
    return space.sample(rng, tuple(sizes[name] for name in ranks))


def _as_space(space: Space, value: Any) -> Any:
    """Lists and numbers as arrays of the dtype of their space."""
    if isinstance(space, Dict):
        return {key: _as_space(child, value[key]) for key, child in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(_as_space(child, part) for child, part in zip(space.spaces, value, strict=True))
    assert isinstance(space, Leaf)
    return np.asarray(value, space.numpy_dtype)
