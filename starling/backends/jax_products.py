"""``matmul`` whose gradient XLA multiplies fast on a CPU.

The gradient of ``x @ w`` in w is the product xᵀ·g, whose terms lie along the rows of both factors. XLA keeps such a
product as it is, on a path that takes up to six times as long as transposing one factor and multiplying. Measured for
a batch of 256, in µs on one thread (x [256, I], g [256, O]):

    I, O           64, 64   64, 2   4, 64   256, 256
    xᵀ·g             39      36       4       320
    as here          26       7       3       281
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["matmul"]


def matmul(x: Any, w: Any) -> Any:
    """The standard's ``matmul``."""
    layer = w.ndim == 2 and x.ndim >= 2 and x.dtype == w.dtype == jnp.float32
    return _layer(x, w) if layer and jax.default_backend() == "cpu" else jnp.matmul(x, w)


@jax.custom_vjp
def _layer(x: Any, w: Any) -> Any:  # [*, I], [I, O] -> [*, O]
    return jnp.matmul(x, w)


def _forward(x: Any, w: Any) -> tuple[Any, Any]:
    return jnp.matmul(x, w), (x, w)


def _backward(kept: Any, g: Any) -> tuple[Any, Any]:
    x, w = kept
    return jnp.matmul(g, w.T), _over_rows(x.reshape(-1, x.shape[-1]), g.reshape(-1, g.shape[-1]))


def _over_rows(x: Any, g: Any) -> Any:  # [B, I], [B, O] -> [I, O]
    """xᵀ·g; the barriers keep XLA from turning a transposed factor back into a product over rows."""
    fixed = jax.lax.optimization_barrier
    if min(x.shape[1], g.shape[1]) == 1:  # of a vector: fast as it is
        return jax.lax.dot_general(g, x, (((0,), (0,)), ((), ()))).T
    if g.shape[1] < x.shape[1]:
        return fixed(jnp.matmul(fixed(g.T), x)).T
    return jnp.matmul(fixed(x.T), g)


_layer.defvjp(_forward, _backward)
