"""Assemble: run each root API once on probes, from the root's input spaces alone.

Every inner space is inferred, every parameter is described when it is first asked for, and every call is noted with
its spaces, its data flow and its cost. Nothing of this stays in the way afterwards: the component itself is not
changed, a mirror of it is called.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from starling.backends.probe import counting_flops, probe, sources_of
from starling.components.base import Component, apis, expectations, replace_children
from starling.components.graph.shapes import SIZES, describe, violation
from starling.core.errors import SpaceError, StarlingError
from starling.core.params import Initialiser, Params
from starling.core.spaces import Space

__all__ = ["Assembly", "CallRecord", "ParameterSpec", "assemble", "instrument"]


@dataclass(frozen=True)
class ParameterSpec:
    """A parameter that the build will create."""

    path: str
    shape: tuple[int, ...]
    init: Initialiser


@dataclass
class CallRecord:
    """One call of a component's API while the graph was assembled."""

    index: int
    path: str  # of the component: "" is the root
    api: str
    component: str  # class name
    inputs: dict[str, str]  # argument -> its space, in words
    flows: list[tuple[Any, str, str]]  # (source: input name or call index, argument, space in words)
    parent: int | None
    output: str = ""
    flops: float = 0.0
    returned: list[Any] = field(default_factory=list)  # the sources its result was computed from


@dataclass
class Assembly:
    """What assembling learned: parameters, calls, seconds. ``batch`` is the batch size the FLOPs refer to."""

    root: Component
    inputs: dict[str, Space]
    parameters: dict[str, ParameterSpec] = field(default_factory=dict)
    scopes: set[str] = field(default_factory=set)
    calls: list[CallRecord] = field(default_factory=list)
    arguments: dict[str, dict[str, Any]] = field(default_factory=dict)  # root API -> those of its last call, as probes
    outputs: dict[str, Any] = field(default_factory=dict)  # root API -> its result, as probes
    tracing: str = ""  # the root API that is being traced
    reads: dict[str, set[str]] = field(default_factory=dict)  # root API -> the scopes and parameters it reads
    failed: CallRecord | None = None
    error: str = ""  # why ``failed`` failed
    seconds: float = 0.0

    def scopes_read_by(self, *apis: str) -> list[str]:
        """The outermost scopes (or parameters of the root) that any of the root's ``apis`` reads."""
        return sorted({path.split(".")[0] for api in apis for path in self.reads.get(api, ())})

    @property
    def parameter_count(self) -> int:
        return sum(math.prod(spec.shape) for spec in self.parameters.values())


class Scope:
    """Stands in for ``Params`` while assembling: creates what is asked for."""

    def __init__(self, assembly: Assembly, path: str = "") -> None:
        self._assembly, self._path = assembly, path
        assembly.scopes.add(path)
        if path:
            assembly.reads.setdefault(assembly.tracing, set()).add(path)
        _refuse_clash(assembly, path)

    def __getitem__(self, name: str) -> Scope:
        return Scope(self._assembly, f"{self._path}.{name}" if self._path else name)

    def __getattr__(self, name: str) -> Scope:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def get(self, name: str, shape: tuple[int, ...], init: Initialiser) -> Any:
        path = f"{self._path}.{name}" if self._path else name
        spec = ParameterSpec(path, tuple(int(n) for n in shape), init)
        known = self._assembly.parameters.setdefault(path, spec)
        self._assembly.reads.setdefault(self._assembly.tracing, set()).add(path)
        _refuse_clash(self._assembly, path)
        if known.shape != spec.shape:
            raise Misfit(
                None, f"parameter {path!r} needs shape {list(spec.shape)} here; an earlier call made it "
                f"{list(known.shape)}"
            )  # fmt: skip
        return probe(np.zeros(spec.shape, np.float32), frozenset())


def _refuse_clash(assembly: Assembly, path: str) -> None:
    if path in assembly.scopes and path in assembly.parameters:
        raise Misfit(None, f"parameter {path!r} has the name of a scope; give one of them another name")


class Misfit(Exception):
    """A value that does not fit; ``argument`` names it where it is known."""

    def __init__(self, argument: str | None, reason: str) -> None:
        super().__init__(reason)
        self.argument = argument


def instrument(component: Component, around: Callable[[Component, str, str, Callable[..., Any]], Any]) -> Component:
    """A mirror of ``component`` whose every API, at every depth, runs as ``around(component, path, api, method)``."""

    def mirror(original: Component, path: str) -> Component:
        inner = replace_children(original, lambda name, c: mirror(c, f"{path}.{name}" if path else name))
        wrapped = {name: around(original, path, name, getattr(type(original), name)) for name in apis(original)}
        copy: Any = object.__new__(type(type(original).__name__, (type(original),), wrapped))
        vars(copy).update(vars(inner))
        return copy

    return mirror(component, "")


def assemble(root: Component, inputs: Mapping[str, Space], only: Collection[str] | None = None) -> Assembly:
    """Trace every API of ``root`` whose first argument is its parameters ``p``, or those in ``only``, in its order.

    An API gets its arguments by name: from ``inputs``, or from the API of that name traced before it. An argument
    called ``target`` is another copy of the parameters, one called ``state`` a learner's: parameters, slow copies of
    them, and the run's progress.
    """
    started = time.perf_counter()
    assembly = Assembly(root, dict(inputs))
    stack: list[CallRecord] = []
    scope = Scope(assembly)
    progress = probe(np.zeros((), np.float32), frozenset(["progress"]))
    values: dict[str, Any] = {"target": scope, "state": Params(params=scope, targets=scope, progress=progress)}
    for name, space in inputs.items():
        values[name] = probe(space.zeros_with(SIZES), frozenset([name]))
    mirrored = instrument(root, lambda *call: _recorded(assembly, stack, *call))
    for name in apis(root) if only is None else [name for name in only if name in apis(root)]:
        arguments = list(inspect.signature(getattr(root, name)).parameters.values())
        if not arguments or arguments[0].name != "p":
            continue
        wanted = [a for a in arguments[1:] if a.kind not in (a.VAR_POSITIONAL, a.VAR_KEYWORD)]
        absent = [a.name for a in wanted if a.name not in values and a.default is a.empty]
        if absent:
            raise SpaceError(
                f"{type(root).__name__}.{name} asks for {absent[0]!r}; the root's inputs are: {', '.join(values)}."
            )
        chosen = {a.name: values[a.name] for a in wanted if a.name in values}
        assembly.tracing = name
        values[name] = getattr(mirrored, name)(scope, **chosen)
    assembly.seconds = time.perf_counter() - started
    return assembly


def _recorded(
    assembly: Assembly, stack: list[CallRecord], component: Component, path: str, name: str, method: Callable[..., Any]
) -> Callable[..., Any]:
    signature = inspect.signature(method)
    expected = expectations(component, name)

    def call(self: Component, *args: Any, **kwargs: Any) -> Any:
        given = _by_name(signature, (self, *args), kwargs)
        flows = [(s, n, describe(v)) for n, v in given.items() for s in sorted(sources_of(v), key=str)]
        spaces = {n: describe(v) for n, v in given.items()}
        parent = stack[-1].index if stack else None
        note = CallRecord(len(assembly.calls), path, name, type(component).__name__, spaces, flows, parent)
        assembly.calls.append(note)
        stack.append(note)
        try:
            for argument, pattern in expected.items():
                if given.get(argument) is not None and (reason := violation(pattern, given[argument])):
                    raise Misfit(argument, reason)
            with counting_flops() as flops:
                result = method(self, *args, **kwargs)
        except Exception as error:
            if isinstance(error, StarlingError) and (not isinstance(error, SpaceError) or error.assembly):
                raise
            assembly.failed, assembly.error = note, str(error)
            raise _misfit_error(assembly, stack, error) from error
        finally:
            stack.pop()
        if not path:
            assembly.arguments[name], assembly.outputs[name] = given, result
        note.output, note.flops = describe(result), flops[0]
        note.returned = sorted(sources_of(result), key=str)
        return probe(result, frozenset([note.index]))

    return call


def _by_name(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, without ``self`` and parameters; ``*more`` become ``more0``, ``more1`` …"""
    try:
        bound = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        raise Misfit(None, str(error)) from None
    named: dict[str, Any] = {}
    for name, value in list(bound.items())[1:]:
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            named.update({f"{name}{i}": child for i, child in enumerate(value)})
        else:
            named.update(value if kind is inspect.Parameter.VAR_KEYWORD else {name: value})
    return {name: value for name, value in named.items() if not isinstance(value, (Scope, Params))}


def _misfit_error(assembly: Assembly, stack: list[CallRecord], error: Exception) -> SpaceError:
    note = stack[-1]
    argument = error.argument if isinstance(error, Misfit) else None
    arrived = ", ".join(f"{name}={space}" for name, space in note.inputs.items())
    chain = " → ".join(f"{call.path or '(root)'}.{call.api}" for call in stack)
    which = f", argument {argument!r}" if argument else ""
    message = (
        f"component {note.path or '(root)'!r} ({note.component}), API {note.api!r}{which}: {error}.\n"
        f"  arrived: {arrived or 'nothing'}\n  calls:   {chain}"
    )
    return SpaceError(message, assembly)
