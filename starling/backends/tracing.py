"""A tracing compiler: what ``compile`` means for a framework without one, NumPy and eager PyTorch.

Small networks spend more time in Python than in arithmetic: looking up parameters, calling components, building
distributions. So a function is run once on tracers, which record each array operation as a line of Python; the lines
are the compiled function. Like any tracing compiler it holds one version per shape of its arguments, and what depends
on the values of arrays cannot be traced: such a function is called as it is.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np

from starling.backends.dispatch import Ops, register_ops
from starling.backends.extras import elementwise
from starling.core.params import Params
from starling.core.trees import map_leaves

__all__ = ["Tracer", "TracingCompiler", "emit", "opaque"]


class Untraceable(Exception):
    """The function does something that a trace cannot hold."""


class Trace:
    """The operations recorded so far, as lines of Python, and the functions and constants they name."""

    def __init__(self, tracer: type[Tracer]) -> None:
        self.tracer = tracer
        self.lines: list[tuple[str, str, list[str]]] = []  # (name, expression, names it uses)
        self.globals: dict[str, Any] = {}

    def assign(self, value: Any, expression: str, used: list[str]) -> Tracer:
        name = f"v{len(self.lines)}"
        self.lines.append((name, expression, used))
        return self.tracer(self, value, name)

    def constant(self, value: Any) -> str:
        name = f"c{len(self.globals)}"
        self.globals[name] = value
        return name

    def refer(self, value: Any, used: list[str]) -> str:
        """The expression for an argument: a tracer's name, a tree of such, or a constant."""
        if isinstance(value, Tracer):
            used.append(value.name)
            return value.name
        if isinstance(value, (tuple, list)) and not _is_plain(value):
            inner = ", ".join(self.refer(child, used) for child in value)
            if isinstance(value, tuple) and type(value) is not tuple:
                return f"{self.constant(type(value))}({inner})"  # a named tuple
            return f"({inner},)" if isinstance(value, tuple) else f"[{inner}]"
        if isinstance(value, dict) and not _is_plain(value):
            inner = "{" + ", ".join(f"{key!r}: {self.refer(child, used)}" for key, child in value.items()) + "}"
            return inner if type(value) is dict else f"{self.constant(type(value))}({inner})"
        if isinstance(value, slice) and not _is_plain((value.start, value.stop, value.step)):
            raise Untraceable("a slice whose ends depend on the data")
        if not _is_plain(value):
            raise Untraceable(f"a {type(value).__name__} that holds data")
        return repr(value) if isinstance(value, (bool, int, str, type(None))) else self.constant(value)

    def source(self, arguments: int, result: str, used: list[str]) -> str:
        """The function's text, without the lines that nothing uses."""
        needed, kept = set(used), []
        for name, expression, inputs in reversed(self.lines):
            if name in needed:
                needed.update(inputs)
                kept.append(f"    {name} = {expression}")
        header = f"def traced({', '.join(f'a{i}' for i in range(arguments))}):"
        return "\n".join([header, *reversed(kept), f"    return {result}"])


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(_is_plain(child) for child in value)
    if isinstance(value, dict):
        return all(_is_plain(child) for child in value.values())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return all(_is_plain(getattr(value, field.name)) for field in dataclasses.fields(value))
    return not isinstance(value, Tracer)


def _value(x: Any) -> Any:
    if isinstance(x, Tracer):
        return x.value
    if isinstance(x, dict):
        return type(x)((key, _value(child)) for key, child in x.items())
    if isinstance(x, (tuple, list)):
        return type(x)([_value(child) for child in x])
    return x


class Tracer:
    """An array whose operations are recorded. It is no ndarray: what is not traced must fail, not pass unseen."""

    __array_priority__ = 1000
    __array_ufunc__ = None  # ndarray operators hand over to ours
    __slots__ = ("name", "trace", "value")

    def __init__(self, trace: Trace, value: Any, name: str) -> None:
        self.trace, self.value, self.name = trace, value, name

    shape = property(lambda self: self.value.shape)
    ndim = property(lambda self: self.value.ndim)
    dtype = property(lambda self: self.value.dtype)
    device = property(lambda self: self.value.device)
    size = property(lambda self: math.prod(self.value.shape))
    T = property(lambda self: self.trace.assign(self.value.T, f"{self.name}.T", [self.name]))
    mT = property(lambda self: self.trace.assign(self.value.mT, f"{self.name}.mT", [self.name]))

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, key: Any) -> Tracer:
        used = [self.name]
        if not _is_plain(key):
            raise Untraceable("an index that depends on the data; use xp.take")
        return self.trace.assign(self.value[key], f"{self.name}[{self.trace.constant(key)}]", used)

    def __bool__(self) -> bool:
        raise Untraceable("a decision that depends on the data")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise Untraceable("NumPy called past the namespace of ops()")

    __float__ = __int__ = __index__ = __iter__ = __bool__

    def __neg__(self) -> Tracer:
        return self.trace.assign(-self.value, f"-{self.name}", [self.name])

    def __abs__(self) -> Tracer:
        return self.trace.assign(abs(self.value), f"abs({self.name})", [self.name])

    def __pos__(self) -> Tracer:
        return self

    def __invert__(self) -> Tracer:
        return self.trace.assign(~self.value, f"~{self.name}", [self.name])


def _operator(symbol: str, compute: Callable[[Any, Any], Any], reflected: bool) -> Callable[[Tracer, Any], Tracer]:
    def apply(self: Tracer, other: Any) -> Tracer:
        used = [self.name]
        there = self.trace.refer(other, used)
        left, right = (there, self.name) if reflected else (self.name, there)
        a, b = (_value(other), self.value) if reflected else (self.value, _value(other))
        return self.trace.assign(compute(a, b), f"{left} {symbol} {right}", used)

    return apply


_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
    "and": "&", "or": "|", "xor": "^", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip
for _name, _symbol in _OPERATORS.items():
    _compute = getattr(__import__("operator"), {"and": "and_", "or": "or_"}.get(_name, _name))
    setattr(Tracer, f"__{_name}__", _operator(_symbol, _compute, reflected=False))
    if _name not in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(Tracer, f"__r{_name}__", _operator(_symbol, _compute, reflected=True))


def _trace_of(value: Any) -> Trace | None:
    if isinstance(value, Tracer):
        return value.trace
    children = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return next((trace for child in children if (trace := _trace_of(child))), None)


def emit(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``fn(*args, **kwargs)``, recorded as one operation where the arguments hold tracers."""
    trace = _trace_of(args) or _trace_of(list(kwargs.values()))
    if trace is None:
        return fn(*args, **kwargs)
    used: list[str] = []
    words = [trace.refer(arg, used) for arg in args]
    words += [f"{key}={trace.refer(value, used)}" for key, value in kwargs.items()]
    result = fn(*_value(args), **{key: _value(value) for key, value in kwargs.items()})
    if isinstance(result, (tuple, list)):
        raise Untraceable(f"{fn.__name__} returns several arrays")
    return trace.assign(result, f"{trace.constant(fn)}({', '.join(words)})", used)


def _tracing_ops(plain: Ops, shortcuts: Mapping[str, Callable[..., Any]]) -> Ops:
    """The namespace of tracers: each function of ``plain``, computed and recorded."""

    def traced(name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        shortcut = shortcuts.get(name)
        if shortcut is None:
            return partial(emit, fn)

        def call(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs) if _trace_of(args) is None else shortcut(*args, **kwargs)

        return call

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise Untraceable("a loop, a branch or a derivative")

    control = dict.fromkeys(("scan", "cond", "value_and_grad"), refuse)
    functions = {n: traced(n, f) for n, f in vars(plain).items() if callable(f) and not isinstance(f, type)}
    return Ops(**{**vars(plain), **functions, "stop_gradient": lambda x: x, "elementwise": elementwise, **control})


def opaque(fn: Callable[..., Any], *args: Any) -> Any:
    """``fn(*args)`` as one operation where ``args`` hold tracers; ``fn`` may return a tree of arrays."""
    trace = _trace_of(args)
    if trace is None:
        return fn(*args)
    used: list[str] = []
    words = [trace.refer(arg, used) for arg in args]
    whole = trace.assign(fn(*_value(args)), f"{trace.constant(fn)}({', '.join(words)})", used)

    def parts(tree: Any, at: Tracer) -> Any:
        if isinstance(tree, dict):
            return {key: parts(child, at[key]) for key, child in tree.items()}
        if isinstance(tree, (tuple, list)):
            return tuple(parts(child, at[i]) for i, child in enumerate(tree))
        return None if tree is None else at

    return parts(whole.value, whole)


class TracingCompiler:
    """Compiles functions of one framework's arrays by tracing them.

    ``convert`` makes an argument's leaf an array of the framework, such as a tensor of a NumPy array. ``shortcuts``
    do operations in fewer calls than ``plain`` does, by name: each takes the operation's arguments, whose shapes
    are known by then, and gives its result by calls of ``emit``. Functions are traced, or called where they cannot be,
    inside of ``around``, such as a default device for new arrays.
    """

    def __init__(
        self,
        plain: Ops,
        convert: Callable[[Any], Any] | None = None,
        shortcuts: Mapping[str, Callable[..., Any]] | None = None,
        around: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._tracer = type("Tracer", (Tracer,), {"__slots__": ()})
        self._convert, self._around = convert, around or nullcontext()
        register_ops(self._tracer, _tracing_ops(plain, shortcuts or {}))

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """``fn`` compiled, one version per shape of its arguments; ``fn`` itself where that cannot be."""
        versions: dict[Any, tuple[Callable[..., Any], Callable[..., Any]]] = {}
        newest: dict[int, Callable[..., Any]] = {}  # by the number of arguments

        def retrace(*args: Any) -> Any:
            key = _signature(args)
            if key not in versions:
                versions[key] = self._trace(fn, args, retrace)
            version, newest[len(args)] = versions[key]
            return version(*args)

        def call(*args: Any) -> Any:
            return newest.get(len(args), retrace)(*args)

        return call

    def _trace(
        self, fn: Callable[..., Any], args: tuple[Any, ...], otherwise: Callable[..., Any]
    ) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """``fn`` for arguments like these, and the same behind a guard that calls ``otherwise`` for others."""
        trace = Trace(self._tracer)
        convert = self._convert

        def wrap(value: Any, expression: str) -> Any:
            if isinstance(value, dict):
                return type(value)((key, wrap(child, f"{expression}[{key!r}]")) for key, child in value.items())
            if isinstance(value, (tuple, list)):
                children = [wrap(child, f"{expression}[{i}]") for i, child in enumerate(value)]
                return type(value)(*children) if hasattr(value, "_fields") else type(value)(children)
            if value is None:
                return None
            if convert is not None and isinstance(value, (np.ndarray, np.generic)):
                return trace.assign(convert(value), f"{trace.constant(convert)}({expression})", [])
            return trace.assign(value, expression, [])

        try:
            with self._around:
                result = fn(*(wrap(arg, f"a{i}") for i, arg in enumerate(args)))
            used: list[str] = []
            source = trace.source(len(args), trace.refer(result, used), used)
        except Untraceable:
            return self._plain(fn), otherwise
        compiled = _function(source, trace.globals, fn)
        guard = _guard(args, trace, otherwise)
        if guard is None:
            return compiled, otherwise
        header, body = source.split("\n", 1)
        return compiled, _function("\n".join([header, guard, body]), trace.globals, fn)

    def _plain(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        convert, around = self._convert, self._around
        if convert is None:
            return fn

        def run(*args: Any) -> Any:
            with around:
                return fn(*(map_leaves(convert, arg) for arg in args))

        return run


def _function(source: str, names: dict[str, Any], fn: Callable[..., Any]) -> Callable[..., Any]:
    exec(compile(source, f"<trace of {fn}>", "exec"), names)
    made: Callable[..., Any] = names["traced"]
    return made


def _guard(args: tuple[Any, ...], trace: Trace, otherwise: Callable[..., Any]) -> str | None:
    """The line that hands over arguments unlike ``args``; None where they are more than arrays and parameters.

    It costs a third of looking up their shapes in a table.
    """
    tests = []
    for i, arg in enumerate(args):
        if type(arg) not in (np.ndarray, Params):
            return None
        tests.append(f"type(a{i}) is {trace.constant(type(arg))}")
        if type(arg) is np.ndarray:
            tests.append(f"a{i}.shape == {arg.shape!r} and a{i}.dtype is {trace.constant(arg.dtype)}")
    names = ", ".join(f"a{i}" for i in range(len(args)))
    return f"    if not ({' and '.join(tests)}): return {trace.constant(otherwise)}({names})"


def _signature(arg: Any) -> Any:
    if isinstance(arg, Params):
        return None  # the parameters of one function never change their shapes
    if isinstance(arg, dict):
        return tuple([(key, _signature(child)) for key, child in arg.items()])
    if isinstance(arg, (tuple, list)):
        return tuple([_signature(child) for child in arg])
    return (arg.shape, arg.dtype) if hasattr(arg, "shape") else type(arg)
