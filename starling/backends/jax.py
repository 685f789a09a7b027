"""JAX: whole updates compiled into one program."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from starling.backends.base import Backend
from starling.backends.captures import capture_all, with_captures
from starling.backends.dispatch import Ops, register_ops
from starling.backends.extras import make_ops
from starling.backends.jax_products import matmul
from starling.core.params import Params, with_scopes
from starling.core.trees import Tree, map_leaves

__all__ = ["JaxBackend", "backend"]

# Where results take over the memory of arguments, XLA looks closely whether an argument must be copied first: an update
# of SAC copies 5 arrays in place of 28, which is about 3 % of its time.
IN_PLACE = {"xla_cpu_copy_insertion_use_region_analysis": True}


def _flatten_params(params: Params) -> tuple[list[tuple[Any, Any]], tuple[str, ...]]:
    keys = tuple(sorted(params))
    return [(jax.tree_util.DictKey(key), params[key]) for key in keys], keys


jax.tree_util.register_pytree_with_keys(
    Params, _flatten_params, lambda keys, children: Params(zip(keys, children, strict=True))
)


def logsumexp(x: Any, axis: int = -1, keepdims: bool = False) -> Any:
    return jax.nn.logsumexp(x, axis=axis, keepdims=keepdims)


def one_hot(index: Any, size: int) -> Any:
    return jax.nn.one_hot(index, size, dtype=jnp.float32)


def take_along(x: Any, index: Any) -> Any:
    return jnp.take_along_axis(x, index[..., None], axis=-1)[..., 0]


def conv2d(x: Any, kernel: Any, stride: int = 1, padding: str = "VALID") -> Any:
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def max_pool2d(x: Any, window: int, stride: int, padding: str = "VALID") -> Any:
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, window, window, 1), (1, stride, stride, 1), padding)


def scan(fn: Callable[[Any, Any], tuple[Any, Any]], carry: Any, xs: Any, reverse: bool = False) -> tuple[Any, Any]:
    def body(carry: Any, x: Any) -> tuple[Any, Any]:
        carry, rest = with_captures(fn)(with_scopes(carry, Params), x)
        return with_scopes(carry, dict), rest  # what goes round must keep its type

    final, (ys, captured) = jax.lax.scan(body, with_scopes(carry, dict), xs, reverse=reverse)
    capture_all(captured)
    return with_scopes(final, Params), ys


def cond(condition: Any, if_true: Callable[..., Any], if_false: Callable[..., Any], *operands: Any) -> Any:
    # What a branch captures leaves with its result; both branches must capture the same names.
    def branch(fn: Callable[..., Any]) -> Callable[..., Any]:
        return with_captures(lambda *args: (fn(*args), None))

    result, (_, captured) = jax.lax.cond(condition, branch(if_true), branch(if_false), *operands)
    capture_all(captured)
    return result


def value_and_grad(fn: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, Tree]]:
    differentiate = jax.value_and_grad(with_captures(fn), has_aux=True)

    def run(params: Tree, *args: Any) -> tuple[Any, Tree]:
        (loss, (aux, captured)), gradients = differentiate(params, *args)
        capture_all(captured)
        return (loss, aux), gradients

    return run


class JaxBackend(Backend):
    """JAX on whatever devices it finds."""

    name = "jax"
    scope_type = dict
    ops: Ops = make_ops(
        jnp,
        matmul=matmul,
        relu=jax.nn.relu,
        softplus=jax.nn.softplus,
        logsumexp=logsumexp,
        log_softmax=jax.nn.log_softmax,
        erf=jax.scipy.special.erf,
        one_hot=one_hot,
        take_along=take_along,
        stop_gradient=jax.lax.stop_gradient,
        value_and_grad=value_and_grad,
        scan=scan,
        cond=cond,
        conv2d=conv2d,
        max_pool2d=max_pool2d,
    )

    def from_numpy(self, tree: Tree, device: str | None = None) -> Tree:
        place = None if device is None else self._device(device)
        return map_leaves(lambda leaf: jax.device_put(jnp.array(leaf), place), tree)  # a copy: donated memory is ours

    def array(self, leaf: Any) -> np.ndarray:
        return np.asarray(leaf)

    def compile(self, fn: Callable[..., Any], donate: Sequence[int] = ()) -> Callable[..., Any]:
        # Plain dicts cross the boundary: JAX flattens them in C++, which is most of the cost of a small call.
        def traced(*args: Any) -> Any:
            return with_scopes(fn(*(with_scopes(arg, Params) for arg in args)), dict)

        return jax.jit(traced, donate_argnums=tuple(donate), compiler_options=IN_PLACE if donate else None)

    def prefer_one_thread(self) -> None:
        # Read by XLA when the first computation starts its thread pool; later it has no effect.
        os.environ.setdefault("NPROC", "1")

    def devices(self) -> list[str]:
        return [f"{device.platform}:{device.id}" for device in jax.devices()]

    def place(self, tree: Tree, device: str) -> Tree:
        return jax.device_put(tree, self._device(device))

    def _device(self, name: str) -> Any:
        self.check_device(name)
        return jax.devices()[self.devices().index(name)]


backend = JaxBackend()
register_ops(jax.Array, backend.ops)
register_ops(jax.core.Tracer, backend.ops)
