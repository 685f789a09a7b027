"""JAX: whole updates compiled into one program."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain, repeat
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from starling.backends.base import Backend
from starling.backends.captures import capture_all, with_captures
from starling.backends.dispatch import Ops, register_ops
from starling.backends.extras import make_ops
from starling.backends.jax_products import matmul
from starling.backends.shares import batch_axes, check_shares
from starling.core.params import Params, with_scopes
from starling.core.spaces import Space
from starling.core.trees import Tree, leaves, map_leaves

__all__ = ["JaxBackend", "backend"]

# Where results take over the memory of arguments, XLA looks closely whether an argument must be copied first: an update
# of SAC copies 5 arrays in place of 28, which is about 3 % of its time.
IN_PLACE = {"xla_cpu_copy_insertion_use_region_analysis": True}
ROWS = "rows"  # the axis of a mesh of devices, along which a batch is divided


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

    def from_numpy(self, tree: Tree, devices: Sequence[str] = ()) -> Tree:
        # NumPy copies: JAX would read the memory when its turn comes, jnp.array too, behind what it has yet to compute.
        where = self._whole(devices)
        return map_leaves(lambda leaf: jax.device_put(np.array(leaf), where), tree)

    def array(self, leaf: Any) -> np.ndarray:
        return np.asarray(leaf)

    def compile(
        self,
        fn: Callable[..., Any],
        donate: Sequence[int] = (),
        devices: Sequence[str] = (),
        shared: Sequence[Space | None] = (),
    ) -> Callable[..., Any]:
        # Plain dicts cross the boundary: JAX flattens them in C++, which is most of the cost of a small call.
        def traced(*args: Any) -> Any:
            return with_scopes(fn(*(with_scopes(arg, Params) for arg in args)), dict)

        options: dict[str, Any] = {"donate_argnums": tuple(donate), "compiler_options": IN_PLACE if donate else None}
        if len(devices) < 2:
            return jax.jit(traced, **options, **({"in_shardings": self._whole(devices)} if devices else {}))
        # The compiler divides the work as the batch is divided, and puts in the sums over all devices that this takes.
        # Results are whole on every device, so that a learner's state stays as it came in.
        compiled = jax.jit(traced, **options, out_shardings=self._whole(devices))
        return lambda *args: compiled(
            *(self._divided(arg, space, devices) for arg, space in zip(args, chain(shared, repeat(None))))
        )

    def _divided(self, tree: Tree, space: Space | None, devices: Sequence[str]) -> Tree:
        """A batch with each device's share of the rows on that device; what is no batch is left as it is."""
        if space is None:
            return tree
        mesh = self._mesh(devices)

        def put(leaf: Any, axis: int | None) -> Any:
            whole = axis is None or leaf.shape[axis] % len(devices)  # the compiler alone can divide these
            return jax.device_put(leaf, _along(mesh, None if whole else axis))

        return map_leaves(put, tree, batch_axes(tree, space))

    def spread(
        self,
        loss: Callable[..., Any],
        devices: Sequence[str],
        spaces: Sequence[Space | None],
        axes: Mapping[str, int],
    ) -> Callable[..., Any]:
        mesh = self._mesh(devices)

        def constrained(leaf: Any, axis: int | None) -> Any:
            return leaf if axis is None else jax.lax.with_sharding_constraint(leaf, _along(mesh, axis))

        def run(*args: Any) -> Any:  # a minibatch was gathered from the rows of all devices: it is divided anew
            along = [batch_axes(arg, space) for arg, space in zip(args, spaces, strict=True)]
            for arg, axis in zip(args, along):
                check_shares(arg, axis, devices)
            return loss(*(map_leaves(constrained, arg, axes) for arg, axes in zip(args, along)))

        return run

    def wait(self, tree: Tree) -> None:
        for leaf in leaves(tree):
            leaf.block_until_ready()

    def prefer_one_thread(self) -> None:
        # Read by XLA when the first computation starts its thread pool; later it has no effect.
        os.environ.setdefault("NPROC", "1")

    def sees(self, device: str) -> bool:
        return device in self.devices()

    def devices(self) -> list[str]:
        return list(_devices())

    def _whole(self, devices: Sequence[str]) -> Any:
        """Where an array is that every one of ``devices`` holds a copy of."""
        self.check_devices(devices)
        if len(devices) > 1:
            return _along(self._mesh(devices), None)
        return SingleDeviceSharding(_devices()[devices[0]]) if devices else None

    def _mesh(self, devices: Sequence[str]) -> Mesh:
        return Mesh(np.array([_devices()[name] for name in devices]), (ROWS,))


def _along(mesh: Mesh, axis: int | None) -> NamedSharding:
    """An array whose rows along ``axis`` are divided; without one, every device has it whole."""
    return NamedSharding(mesh, PartitionSpec(*(() if axis is None else (*[None] * axis, ROWS))))


@cache
def _devices() -> dict[str, Any]:
    """By name: those of the default platform first, then the processor. JAX calls any maker's GPU ``gpu``."""
    found = list(jax.devices())
    if found[0].platform != "cpu":
        with suppress(RuntimeError):  # JAX_PLATFORMS may leave the processor out
            found += jax.devices("cpu")
    return {f"{'cuda' if device.platform == 'gpu' else device.platform}:{device.id}": device for device in found}


backend = JaxBackend()
register_ops(jax.Array, backend.ops)
register_ops(jax.core.Tracer, backend.ops)
