"""Straight lines: what "compiled" means for a framework without a compiler, NumPy and eager PyTorch.

Small networks spend more time in Python than in arithmetic: looking up parameters, calling components, building
distributions. So a function is run once on tracers, which write down each array operation as a line of Python; the
lines are the compiled function. Like any tracing compiler it holds one version per shape of its arguments, and what
depends on the values of arrays cannot be traced: such a function is called as it is.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from starling.backends.dispatch import Ops, register_ops
from starling.backends.extras import elementwise
from starling.core.params import Params
from starling.core.trees import map_leaves

__all__ = ["Straightener", "Tracer", "line", "opaque"]


class Untraceable(Exception):
    """The function does something that a straight line cannot."""


class Program:
    """The lines written so far, and the functions and constants they name."""

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
        header = f"def straight({', '.join(f'a{i}' for i in range(arguments))}):"
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
    """An array whose operations are written down. It is no ndarray: what is not traced must fail, not pass unseen."""

    __array_priority__ = 1000
    __array_ufunc__ = None  # ndarray operators hand over to ours
    __slots__ = ("name", "program", "value")

    def __init__(self, program: Program, value: Any, name: str) -> None:
        self.program, self.value, self.name = program, value, name

    shape = property(lambda self: self.value.shape)
    ndim = property(lambda self: self.value.ndim)
    dtype = property(lambda self: self.value.dtype)
    device = property(lambda self: self.value.device)
    size = property(lambda self: math.prod(self.value.shape))
    T = property(lambda self: self.program.assign(self.value.T, f"{self.name}.T", [self.name]))
    mT = property(lambda self: self.program.assign(self.value.mT, f"{self.name}.mT", [self.name]))

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, key: Any) -> Tracer:
        used = [self.name]
        if not _is_plain(key):
            raise Untraceable("an index that depends on the data; use xp.take")
        return self.program.assign(self.value[key], f"{self.name}[{self.program.constant(key)}]", used)

    def __bool__(self) -> bool:
        raise Untraceable("a decision that depends on the data")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise Untraceable("NumPy called past the namespace of ops()")

    __float__ = __int__ = __index__ = __iter__ = __bool__

    def __neg__(self) -> Tracer:
        return self.program.assign(-self.value, f"-{self.name}", [self.name])

    def __abs__(self) -> Tracer:
        return self.program.assign(abs(self.value), f"abs({self.name})", [self.name])

    def __pos__(self) -> Tracer:
        return self

    def __invert__(self) -> Tracer:
        return self.program.assign(~self.value, f"~{self.name}", [self.name])


def _operator(symbol: str, compute: Callable[[Any, Any], Any], reflected: bool) -> Callable[[Tracer, Any], Tracer]:
    def apply(self: Tracer, other: Any) -> Tracer:
        used = [self.name]
        there = self.program.refer(other, used)
        left, right = (there, self.name) if reflected else (self.name, there)
        a, b = (_value(other), self.value) if reflected else (self.value, _value(other))
        return self.program.assign(compute(a, b), f"{left} {symbol} {right}", used)

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


def _program_of(value: Any) -> Program | None:
    if isinstance(value, Tracer):
        return value.program
    children = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return next((program for child in children if (program := _program_of(child))), None)


def line(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``fn(*args, **kwargs)``, written down as one line where the arguments hold tracers."""
    program = _program_of(args) or _program_of(list(kwargs.values()))
    if program is None:
        return fn(*args, **kwargs)
    used: list[str] = []
    words = [program.refer(arg, used) for arg in args]
    words += [f"{key}={program.refer(value, used)}" for key, value in kwargs.items()]
    result = fn(*_value(args), **{key: _value(value) for key, value in kwargs.items()})
    if isinstance(result, (tuple, list)):
        raise Untraceable(f"{fn.__name__} returns several arrays")
    return program.assign(result, f"{program.constant(fn)}({', '.join(words)})", used)


def _tracing_ops(plain: Ops, shortcuts: Mapping[str, Callable[..., Any]]) -> Ops:
    """The namespace of tracers: each function of ``plain``, computed and written down."""

    def traced(name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        shortcut = shortcuts.get(name)
        if shortcut is None:
            return partial(line, fn)

        def call(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs) if _program_of(args) is None else shortcut(*args, **kwargs)

        return call

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise Untraceable("a loop, a branch or a derivative")

    control = dict.fromkeys(("scan", "cond", "value_and_grad"), refuse)
    functions = {n: traced(n, f) for n, f in vars(plain).items() if callable(f) and not isinstance(f, type)}
    return Ops(**{**vars(plain), **functions, "stop_gradient": lambda x: x, "elementwise": elementwise, **control})


def opaque(fn: Callable[..., Any], *args: Any) -> Any:
    """``fn(*args)`` as one line where ``args`` hold tracers; ``fn`` may return a tree of arrays."""
    program = _program_of(args)
    if program is None:
        return fn(*args)
    used: list[str] = []
    words = [program.refer(arg, used) for arg in args]
    whole = program.assign(fn(*_value(args)), f"{program.constant(fn)}({', '.join(words)})", used)

    def parts(tree: Any, at: Tracer) -> Any:
        if isinstance(tree, dict):
            return {key: parts(child, at[key]) for key, child in tree.items()}
        if isinstance(tree, (tuple, list)):
            return tuple(parts(child, at[i]) for i, child in enumerate(tree))
        return None if tree is None else at

    return parts(whole.value, whole)


class Straightener:
    """Turns functions of one framework's arrays into straight lines.

    ``convert`` makes an argument's leaf an array of the framework, such as a tensor of a NumPy array. ``shortcuts``
    write operations in fewer words than ``plain`` does, by name: each takes the operation's arguments, whose shapes
    are known by then, and gives its result by calls of ``line``.
    """

    def __init__(
        self,
        plain: Ops,
        convert: Callable[[Any], Any] | None = None,
        shortcuts: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        self._tracer = type("Tracer", (Tracer,), {"__slots__": ()})
        self._convert = convert
        register_ops(self._tracer, _tracing_ops(plain, shortcuts or {}))

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """``fn`` as straight lines, one version per shape of its arguments; ``fn`` itself where that cannot be."""
        versions: dict[Any, tuple[Callable[..., Any], Callable[..., Any]]] = {}
        newest: dict[int, Callable[..., Any]] = {}  # by the number of arguments

        def look_up(*args: Any) -> Any:
            key = _signature(args)
            if key not in versions:
                versions[key] = self._trace(fn, args, look_up)
            version, newest[len(args)] = versions[key]
            return version(*args)

        def call(*args: Any) -> Any:
            return newest.get(len(args), look_up)(*args)

        return call

    def _trace(
        self, fn: Callable[..., Any], args: tuple[Any, ...], otherwise: Callable[..., Any]
    ) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """``fn`` for arguments like these, and the same with a look at them that calls ``otherwise`` for others."""
        program = Program(self._tracer)
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
                return program.assign(convert(value), f"{program.constant(convert)}({expression})", [])
            return program.assign(value, expression, [])

        try:
            result = fn(*(wrap(arg, f"a{i}") for i, arg in enumerate(args)))
            used: list[str] = []
            source = program.source(len(args), program.refer(result, used), used)
        except Untraceable:
            return self._plain(fn), otherwise
        straight = _function(source, program.globals, fn)
        look = _look_at(args, program, otherwise)
        if look is None:
            return straight, otherwise
        header, body = source.split("\n", 1)
        return straight, _function("\n".join([header, look, body]), program.globals, fn)

    def _plain(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        convert = self._convert
        return fn if convert is None else lambda *args: fn(*(map_leaves(convert, arg) for arg in args))


def _function(source: str, names: dict[str, Any], fn: Callable[..., Any]) -> Callable[..., Any]:
    exec(compile(source, f"<straight lines of {fn}>", "exec"), names)
    made: Callable[..., Any] = names["straight"]
    return made


def _look_at(args: tuple[Any, ...], program: Program, otherwise: Callable[..., Any]) -> str | None:
    """The line that hands over arguments unlike ``args``; None where they are more than arrays and parameters.

    It costs a third of looking up their shapes in a table.
    """
    tests = []
    for i, arg in enumerate(args):
        if type(arg) not in (np.ndarray, Params):
            return None
        tests.append(f"type(a{i}) is {program.constant(type(arg))}")
        if type(arg) is np.ndarray:
            tests.append(f"a{i}.shape == {arg.shape!r} and a{i}.dtype is {program.constant(arg.dtype)}")
    names = ", ".join(f"a{i}" for i in range(len(args)))
    return f"    if not ({' and '.join(tests)}): return {program.constant(otherwise)}({names})"


def _signature(arg: Any) -> Any:
    if isinstance(arg, Params):
        return None  # the parameters of one function never change their shapes
    if isinstance(arg, dict):
        return tuple([(key, _signature(child)) for key, child in arg.items()])
    if isinstance(arg, (tuple, list)):
        return tuple([_signature(child) for child in arg])
    return (arg.shape, arg.dtype) if hasattr(arg, "shape") else type(arg)
