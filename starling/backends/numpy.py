"""NumPy: the reference in tests, and the fastest actor for small networks.

Its gradients are central differences in double precision: exact enough to check the others by, too slow to train
with. ``stop_gradient`` is honoured by playing back the values it saw at the unshifted point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from starling.backends.base import Backend
from starling.backends.captures import capture_all, with_captures
from starling.backends.dispatch import Ops, register_ops
from starling.backends.extras import make_ops, same_padding
from starling.backends.tracing import TracingCompiler, emit
from starling.core.spaces import Space
from starling.core.trees import Tree, items, leaves, map_leaves

__all__ = ["NumpyBackend", "backend", "cond", "conv2d", "loop_scan", "numpy_extras", "stop_gradient"]


def reduction(ufunc: np.ufunc) -> Callable[..., Any]:
    """``np.sum`` and its kind without their Python wrapper, which costs as much as a small sum."""

    reduce: Any = ufunc.reduce

    def over(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        return reduce(x, axis, dtype, None, keepdims)

    return over


def astype(x: Any, dtype: Any, copy: bool = True) -> Any:
    return x.astype(dtype, copy=copy)


def argmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    return x.argmax(axis, keepdims=keepdims)


def cumulative_sum(x: Any, axis: int = -1, dtype: Any = None) -> Any:
    return np.add.accumulate(x, axis, dtype)


def log_softmax(x: Any, axis: int = -1) -> Any:
    shifted = x - np.maximum.reduce(x, axis, keepdims=True)
    return shifted - np.log(np.add.reduce(np.exp(shifted), axis, keepdims=True))


def take_along(x: Any, index: Any) -> Any:
    # Plain indexing: np.take_along_axis takes three times as long on the batches of an actor.
    if x.ndim == 2:
        return x[np.arange(len(x)), index]
    rows = x.reshape(-1, x.shape[-1])
    return rows[np.arange(len(rows)), index.reshape(-1)].reshape(index.shape)


def relu(x: Any) -> Any:
    return np.maximum(x, 0)


def erf(x: Any) -> Any:
    from scipy.special import erf as exact  # type: ignore[import-untyped]

    return exact(x)


def windows(x: Any, size: tuple[int, int], stride: int, padding: str, fill: float) -> Any:
    """Every window of an image batch: [B, H, W, C] -> [B, H', W', C, kh, kw]."""
    if padding == "SAME":
        rows, columns = (same_padding(n, k, stride) for n, k in zip(x.shape[1:3], size))
        x = np.pad(x, ((0, 0), rows, columns, (0, 0)), constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(x, size, axis=(1, 2))[:, ::stride, ::stride]


def conv2d(x: Any, kernel: Any, stride: int = 1, padding: str = "VALID") -> Any:
    seen = windows(x, kernel.shape[:2], stride, padding, 0)
    rows = seen.transpose(0, 1, 2, 4, 5, 3).reshape(*seen.shape[:3], -1)
    return rows @ kernel.reshape(-1, kernel.shape[-1])


def max_pool2d(x: Any, window: int, stride: int, padding: str = "VALID") -> Any:
    return windows(x, (window, window), stride, padding, -np.inf).max(axis=(-2, -1))


def loop_scan(stack: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
    """A ``scan`` that is a plain loop: ``fn(carry, x) -> (carry, y)`` over the leading axis of ``xs``."""

    def scan(fn: Callable[[Any, Any], tuple[Any, Any]], carry: Any, xs: Any, reverse: bool = False) -> tuple[Any, Any]:
        step = with_captures(fn)
        length = leaves(xs)[0].shape[0]
        results: list[Any] = [None] * length
        for i in reversed(range(length)) if reverse else range(length):
            carry, results[i] = step(carry, map_leaves(lambda x, i=i: x[i, ...], xs))
        ys, captured = map_leaves(lambda *ys: stack(ys), results[0], *results[1:])
        capture_all(captured)
        return carry, ys

    return scan


def cond(condition: Any, if_true: Callable[..., Any], if_false: Callable[..., Any], *operands: Any) -> Any:
    return if_true(*operands) if condition else if_false(*operands)


_stopped: list[Any] | None = None  # the values of stop_gradient while a derivative is taken
_replayed = 0


def stop_gradient(x: Any) -> Any:
    global _replayed
    if _stopped is None:
        return x
    if _replayed == len(_stopped):
        _stopped.append(np.array(x))  # the parameters are shifted in place
    _replayed += 1
    return _stopped[_replayed - 1]


def value_and_grad(fn: Callable[..., tuple[Any, Any]], step: float = 1e-6) -> Callable[..., tuple[Any, Tree]]:
    """``fn(params, *args) -> (loss, aux)`` becomes ``((loss, aux), gradients)``."""

    def differentiate(params: Tree, *args: Any) -> tuple[Any, Tree]:
        global _stopped, _replayed
        exact = map_leaves(lambda leaf: np.array(leaf, dtype=np.float64), params)
        outer = (_stopped, _replayed)
        _stopped = []

        def evaluate() -> tuple[Any, Any]:
            global _replayed
            _replayed = 0
            return with_captures(fn)(exact, *args)

        try:
            loss, (aux, captured) = evaluate()
            gradients = map_leaves(np.zeros_like, params)
            for (_, leaf), (_, gradient) in zip(items(exact), items(gradients)):
                for index in np.ndindex(leaf.shape):
                    here = leaf[index]
                    leaf[index] = here + step
                    above = evaluate()[0]
                    leaf[index] = here - step
                    below = evaluate()[0]
                    leaf[index] = here
                    gradient[index] = (above - below) / (2 * step)
        finally:
            _stopped, _replayed = outer
        capture_all(captured)
        return (loss, aux), gradients

    return differentiate


def numpy_extras() -> dict[str, Any]:
    return {
        "relu": relu,
        "sum": reduction(np.add),
        "max": reduction(np.maximum),
        "min": reduction(np.minimum),
        "argmax": argmax,
        "astype": astype,
        "cumulative_sum": cumulative_sum,
        "log_softmax": log_softmax,
        "take_along": take_along,
        "erf": erf,
        "conv2d": conv2d,
        "max_pool2d": max_pool2d,
        "scan": loop_scan(np.stack),
        "cond": cond,
        "stop_gradient": stop_gradient,
        "value_and_grad": value_and_grad,
    }


def direct_reduction(ufunc: np.ufunc) -> Callable[..., Any]:
    reduce: Any = ufunc.reduce

    def over(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        return emit(reduce, x, axis, dtype, None, keepdims)

    return over


def direct_matmul(x: Any, w: Any) -> Any:
    # For matrices ``dot`` does the same in half of matmul's time, which looks for axes to broadcast.
    return emit(np.ndarray.dot, x, w) if x.ndim == w.ndim == 2 else emit(np.matmul, x, w)


def direct_argmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    return emit(argmax, x, axis, keepdims) if keepdims or not x.ndim else emit(np.ndarray.argmax, x, axis)


def direct_astype(x: Any, dtype: Any, copy: bool = True) -> Any:
    # What has no dimensions may be an array at one call and a scalar, with other methods, at the next.
    return emit(np.ndarray.astype if x.ndim else astype, x, dtype)


def direct_cumulative_sum(x: Any, axis: int = -1, dtype: Any = None) -> Any:
    return emit(np.ndarray.cumsum if x.ndim else cumulative_sum, x, axis, dtype)


def direct_take_along(x: Any, index: Any) -> Any:
    if x.ndim != 2:
        return emit(take_along, x, index)
    starts = np.arange(x.shape[0], dtype=np.int32) * x.shape[1]
    return emit(np.ndarray.take, x, index + starts)


SHORTCUTS: dict[str, Callable[..., Any]] = {
    "matmul": direct_matmul,
    "sum": direct_reduction(np.add),
    "max": direct_reduction(np.maximum),
    "min": direct_reduction(np.minimum),
    "argmax": direct_argmax,
    "astype": direct_astype,
    "cumulative_sum": direct_cumulative_sum,
    "relu": lambda x: emit(np.maximum, x, np.zeros((), x.dtype)),
    "take_along": direct_take_along,
}


class NumpyBackend(Backend):
    """NumPy on the one CPU."""

    name = "numpy"
    ops: Ops = make_ops(np, **numpy_extras())

    def from_numpy(self, tree: Tree, devices: Sequence[str] = ()) -> Tree:
        self.check_devices(devices)
        return map_leaves(np.array, tree)

    def array(self, leaf: Any) -> np.ndarray:
        return leaf

    def to_numpy(self, tree: Tree) -> Tree:
        return tree

    def compile(
        self,
        fn: Callable[..., Any],
        donate: Sequence[int] = (),
        devices: Sequence[str] = (),
        shared: Sequence[Space | None] = (),
    ) -> Callable[..., Any]:
        self.check_devices(devices)
        return _compile(fn)

    def spread(
        self,
        loss: Callable[..., Any],
        devices: Sequence[str],
        spaces: Sequence[Space | None],
        axes: Mapping[str, int],
    ) -> Callable[..., Any]:
        return loss  # there is one device

    def wait(self, tree: Tree) -> None:
        """Nothing to wait for: a call returns when its result is computed."""

    def prefer_one_thread(self) -> None:
        # The threads of a matrix library spin for a while after each product: on few cores that slows all else.
        threadpool_limits(1, user_api="blas")

    def sees(self, device: str) -> bool:
        return device in self.devices()

    def devices(self) -> list[str]:
        return ["cpu:0"]


backend = NumpyBackend()
register_ops(np.ndarray, backend.ops)
register_ops(np.generic, backend.ops)
_compile = TracingCompiler(backend.ops, shortcuts=SHORTCUTS)
