"""Probes: NumPy arrays that run a computation once to learn its shapes, its data flow and its cost.

A probe remembers which sources (inputs, or calls) its values came from, and every operation on probes adds its
floating-point operations to the running count. Gradients are not taken: ``value_and_grad`` runs the function once.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import numpy as np

from starling.backends.dispatch import register_ops
from starling.backends.extras import elementwise, make_ops
from starling.backends.numpy import conv2d, loop_scan, numpy_extras, stop_gradient
from starling.core.trees import items, map_leaves, opened

__all__ = ["Probe", "counting_flops", "probe", "sources_of", "spend_flops"]

_flops: list[float] = []
_MOVES = """arange asarray astype broadcast_arrays broadcast_to concat empty_like expand_dims eye flip full full_like
linspace matrix_transpose moveaxis ones ones_like permute_dims reshape squeeze stack take zeros zeros_like"""
_MOVING = {stop_gradient, *(getattr(np, name) for name in _MOVES.split())}


class Probe(np.ndarray):
    """An array that knows where its values came from."""

    sources: frozenset[Any]

    def __array_finalize__(self, parent: Any) -> None:
        self.sources = getattr(parent, "sources", frozenset())

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return _probing(ufunc)(*inputs, **kwargs) if method == "__call__" else NotImplemented


def probe(value: Any, sources: frozenset[Any]) -> Any:
    """The arrays of a tree as probes from ``sources``, those in the fields of dataclasses too."""

    def view(leaf: Any) -> Any:
        if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            fields = {f.name: getattr(leaf, f.name) for f in dataclasses.fields(leaf) if f.init}
            return dataclasses.replace(leaf, **{name: probe(value, sources) for name, value in fields.items()})
        if not isinstance(leaf, (np.ndarray, np.generic)):
            return leaf
        seen = np.asarray(leaf).view(Probe)
        seen.sources = sources
        return seen

    return map_leaves(view, value)


def sources_of(value: Any) -> frozenset[Any]:
    """Every source of the probes in a tree."""
    found = (leaf.sources for _, leaf in items(opened(value)) if isinstance(leaf, Probe))
    return frozenset().union(*found)


@contextmanager
def counting_flops() -> Any:
    """Count the floating-point operations on probes inside the block: yields a one-element list."""
    _flops.append(0.0)
    total = [0.0]
    try:
        yield total
    finally:
        total[0] = _flops.pop()
        if _flops:
            _flops[-1] += total[0]


def spend_flops(count: float) -> None:
    """Add to the running count what an operation costs that is not made of probes' own operations."""
    if _flops:
        _flops[-1] += count


def _probing(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn`` on plain arrays, its result a probe again, its cost counted."""

    def call(*args: Any, **kwargs: Any) -> Any:
        plain_args, plain_kwargs = map_leaves(_plain, (list(args), kwargs))
        result = fn(*plain_args, **plain_kwargs)
        spend_flops(_cost(fn, plain_args, result))
        return probe(result, sources_of([list(args), kwargs]))

    return call


def _plain(leaf: Any) -> Any:
    return leaf.view(np.ndarray) if isinstance(leaf, Probe) else leaf


def _cost(fn: Callable[..., Any], args: list[Any], result: Any) -> float:
    """Floating-point operations: two per multiply-add of a product or convolution, none for moving numbers about,
    one per element of the result otherwise."""
    if fn in _MOVING:
        return 0.0
    if fn is np.matmul:
        return 2.0 * np.size(result) * np.shape(args[0])[-1]
    if fn is conv2d:
        return 2.0 * np.size(result) * math.prod(np.shape(args[1])[:-1])
    return float(sum(leaf.size for _, leaf in items(result) if isinstance(leaf, (np.ndarray, np.generic))))


def _value_only(fn: Callable[..., tuple[Any, Any]]) -> Callable[..., Any]:
    return lambda params, *args: (fn(params, *args), params)


def _namespace() -> Any:
    native = numpy_extras()
    control = {"scan": loop_scan(_probing(np.stack)), "cond": native["cond"], "value_and_grad": _value_only}
    control["elementwise"] = elementwise
    functions = {n: f for n, f in vars(make_ops(np, **native)).items() if callable(f) and not isinstance(f, type)}
    return make_ops(np, **{name: _probing(fn) for name, fn in functions.items()} | control)


register_ops(Probe, _namespace())
