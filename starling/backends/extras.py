"""What the shared source needs and the array API standard lacks.

``standard(xp)`` collects the standard functions the project uses; ``generic(xp)`` writes the extras with them.
A backend starts from both and replaces what its framework does better. These names and no others may be used:

    relu, softplus, log_softmax, logsumexp, erf      elementwise and along the last axis
    one_hot, take_along                              indices along the last axis: x [..., A], index [...]
    stop_gradient, value_and_grad                    derivatives
    scan, cond                                       control flow that compiles to a loop or a branch
    elementwise                                      one function over every element of trees
    conv2d, max_pool2d                               images [B, H, W, C], kernels [kh, kw, C, O]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from starling.backends.dispatch import Ops
from starling.core.trees import Tree, leaves, refilled

__all__ = ["STANDARD", "elementwise", "generic", "make_ops", "same_padding", "standard"]

STANDARD = (  # noqa: SIM905
    "float32 float64 int32 int64 uint8 bool "
    "abs acos all any arange argmax argmin argsort asarray astype atan atanh broadcast_arrays broadcast_to ceil clip "
    "concat cos cumulative_sum empty_like equal exp expand_dims expm1 eye finfo flip floor full full_like isfinite "
    "isnan less linspace log log1p logical_and logical_not logical_or matmul matrix_transpose max maximum mean min "
    "minimum moveaxis ones ones_like permute_dims prod reshape round sign sin sort sqrt square squeeze stack std sum "
    "take tan tanh tensordot var where zeros zeros_like"
).split()


def standard(xp: Any) -> dict[str, Any]:
    """The standard's functions, from a namespace that follows it."""
    return {name: getattr(xp, name) for name in STANDARD}


def generic(xp: Any) -> dict[str, Any]:
    """The extras without derivatives and images, written with the standard alone."""

    def relu(x: Any) -> Any:
        return xp.where(x > 0, x, xp.zeros_like(x))

    def softplus(x: Any) -> Any:
        return relu(x) + xp.log1p(xp.exp(-xp.abs(x)))

    def logsumexp(x: Any, axis: int = -1, keepdims: bool = False) -> Any:
        top = xp.max(x, axis=axis, keepdims=True)
        top = xp.where(xp.isfinite(top), top, xp.zeros_like(top))  # all -inf: -inf, not nan
        total = xp.log(xp.sum(xp.exp(x - top), axis=axis, keepdims=True)) + top
        return total if keepdims else xp.squeeze(total, axis=axis)

    def log_softmax(x: Any, axis: int = -1) -> Any:
        shifted = x - xp.max(x, axis=axis, keepdims=True)
        return shifted - xp.log(xp.sum(xp.exp(shifted), axis=axis, keepdims=True))

    def one_hot(index: Any, size: int) -> Any:
        classes = xp.arange(size, dtype=index.dtype)
        return xp.astype(xp.expand_dims(index, axis=-1) == classes, xp.float32)

    def take_along(x: Any, index: Any) -> Any:
        chosen = xp.expand_dims(index, axis=-1) == xp.arange(x.shape[-1], dtype=index.dtype)
        return xp.sum(xp.where(chosen, x, xp.zeros_like(x)), axis=-1)

    def erf(x: Any) -> Any:
        # Abramowitz & Stegun 7.1.26 in double precision: |error| < 1.5e-7.
        t = 1.0 / (1.0 + 0.3275911 * xp.abs(x))
        series = (((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592
        return xp.sign(x) * (1.0 - series * t * xp.exp(-x * x))

    return {
        "relu": relu,
        "softplus": softplus,
        "logsumexp": logsumexp,
        "log_softmax": log_softmax,
        "one_hot": one_hot,
        "take_along": take_along,
        "erf": erf,
        "stop_gradient": lambda x: x,
        "elementwise": elementwise,
    }


def elementwise(fn: Callable[..., tuple[Any, ...]], *trees: Tree) -> tuple[Tree, ...]:
    """``fn`` at every leaf of trees of one shape; ``fn`` returns a tuple, the result is a tuple of trees."""
    results = [fn(*group) for group in zip(*(leaves(tree) for tree in trees))]
    return tuple(refilled(trees[0], column) for column in zip(*results))


def same_padding(size: int, window: int, stride: int) -> tuple[int, int]:
    """Zeros before and after so that ``ceil(size / stride)`` windows fit."""
    total = max((math.ceil(size / stride) - 1) * stride + window - size, 0)
    return total // 2, total - total // 2


def make_ops(xp: Any, **native: Any) -> Ops:
    """A namespace: the standard, the generic extras, and what the framework does better."""
    return Ops(**{**standard(xp), **generic(xp), **native})
