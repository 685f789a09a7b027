"""PyTorch: define-by-run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import array_api_compat.torch as compat
import numpy as np
import torch
import torch.nn.functional as F

from starling.backends.base import Backend
from starling.backends.captures import capture_all, with_captures
from starling.backends.dispatch import Ops, register_ops
from starling.backends.extras import make_ops, same_padding
from starling.backends.numpy import cond, loop_scan
from starling.backends.shares import batch_axes, check_shares, merged, share_of, weight_of
from starling.backends.tracing import Tracer, TracingCompiler, emit
from starling.core.machine import keep_freed_memory
from starling.core.spaces import Space
from starling.core.trees import Tree, leaves, map_leaves, refilled

__all__ = ["TorchBackend", "backend"]


def log_softmax(x: Any, axis: int = -1) -> Any:
    return torch.log_softmax(x, dim=axis)


def logsumexp(x: Any, axis: int = -1, keepdims: bool = False) -> Any:
    return torch.logsumexp(x, dim=axis, keepdim=keepdims)


def softplus(x: Any) -> Any:
    return F.softplus(x, threshold=80.0)  # the default switches to the identity at 20, the other backends do not


def one_hot(index: Any, size: int) -> Any:
    return F.one_hot(index.long(), size).float()


def take_along(x: Any, index: Any) -> Any:
    return torch.gather(x, -1, index.long().unsqueeze(-1)).squeeze(-1)


def pad(x: Any, window: tuple[int, int], stride: int, padding: str, fill: float) -> Any:
    """Pad [B, C, H, W] as ``padding`` says."""
    if padding == "VALID":
        return x
    top, bottom = same_padding(x.shape[2], window[0], stride)
    left, right = same_padding(x.shape[3], window[1], stride)
    return F.pad(x, (left, right, top, bottom), value=fill)


def conv2d(x: Any, kernel: Any, stride: int = 1, padding: str = "VALID") -> Any:
    # A permuted view of [B, H, W, C] is channels_last, the fast layout; it comes out as one and is permuted back.
    x = pad(x.permute(0, 3, 1, 2), (kernel.shape[0], kernel.shape[1]), stride, padding, 0.0)
    weight = kernel.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
    return F.conv2d(x, weight, stride=stride).permute(0, 2, 3, 1)


def max_pool2d(x: Any, window: int, stride: int, padding: str = "VALID") -> Any:
    x = pad(x.permute(0, 3, 1, 2), (window, window), stride, padding, float("-inf"))
    return F.max_pool2d(x, window, stride).permute(0, 2, 3, 1)


# What follows says the standard's names in PyTorch's words. array-api-compat does the same with more care for mixed
# types than shared source needs, at a cost that shows in acting.


def reshape(x: Any, shape: tuple[int, ...]) -> Any:
    return torch.reshape(x, shape)


def astype(x: Any, dtype: Any, copy: bool = True) -> Any:
    return x.to(dtype)


def every(x: Any) -> tuple[int, ...]:
    return tuple(range(x.ndim))


def total(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    return torch.sum(x, every(x) if axis is None else axis, keepdims, dtype=dtype)


def mean(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return torch.mean(x, every(x) if axis is None else axis, keepdims)


def largest(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return torch.amax(x, every(x) if axis is None else axis, keepdims)


def smallest(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return torch.amin(x, every(x) if axis is None else axis, keepdims)


def argmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    return torch.argmax(x, axis, keepdims)


def cumulative_sum(x: Any, axis: int = -1, dtype: Any = None) -> Any:
    return torch.cumsum(x, axis, dtype=dtype)


def maximum(x: Any, y: Any) -> Any:
    return torch.clamp(x, min=y) if isinstance(y, (int, float)) else torch.maximum(x, y)


def minimum(x: Any, y: Any) -> Any:
    return torch.clamp(x, max=y) if isinstance(y, (int, float)) else torch.minimum(x, y)


def direct_take_along(x: Any, index: Any) -> Any:
    column = emit(torch.Tensor.unsqueeze, emit(torch.Tensor.long, index), -1)
    return emit(torch.Tensor.squeeze, emit(torch.gather, x, -1, column), -1)


def direct_maximum(x: Any, y: Any) -> Any:
    return emit(torch.clamp, x, min=y) if isinstance(y, (int, float)) else emit(torch.maximum, x, y)


def direct_minimum(x: Any, y: Any) -> Any:
    return emit(torch.clamp, x, max=y) if isinstance(y, (int, float)) else emit(torch.minimum, x, y)


def direct_largest(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return emit(torch.amax, x, every(x) if axis is None else axis, keepdims)


def direct_total(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    return emit(torch.sum, x, every(x) if axis is None else axis, keepdims, dtype=dtype)


SHORTCUTS: dict[str, Callable[..., Any]] = {
    "astype": lambda x, dtype, copy=True: emit(torch.Tensor.to, x, dtype),
    "argmax": lambda x, axis=None, keepdims=False: emit(torch.argmax, x, axis, keepdims),
    "cumulative_sum": lambda x, axis=-1, dtype=None: emit(torch.cumsum, x, axis, dtype=dtype),
    "max": direct_largest,
    "maximum": direct_maximum,
    "minimum": direct_minimum,
    "sum": direct_total,
    "take_along": direct_take_along,
}


def value_and_grad(fn: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, Tree]]:
    def run(params: Tree, *args: Any) -> tuple[Any, Tree]:
        with torch.enable_grad():
            tracked = map_leaves(lambda leaf: leaf.detach().requires_grad_(True), params)
            loss, (aux, captured) = with_captures(fn)(tracked, *args)
            wanted = leaves(tracked)
            # A loss that depends on none of them has no graph to walk.
            flat = torch.autograd.grad(loss, wanted, allow_unused=True) if loss.requires_grad else [None] * len(wanted)
        gradients = [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, flat)]
        capture_all(map_leaves(detach, captured))
        return (loss.detach(), map_leaves(detach, aux)), refilled(params, gradients)

    return run


def elementwise(fn: Callable[..., tuple[Any, ...]], *trees: Tree) -> tuple[Tree, ...]:
    """As ``extras.elementwise``, over all leaves as one vector: one call instead of one per leaf."""
    shapes = [leaf.shape for leaf in leaves(trees[0])]
    results = fn(*(torch.cat([leaf.reshape(-1) for leaf in leaves(tree)]) for tree in trees))
    sizes = [shape.numel() for shape in shapes]
    return tuple(
        refilled(trees[0], (part.reshape(shape) for part, shape in zip(vector.split(sizes), shapes)))
        for vector in results
    )


def detach(x: Any) -> Any:
    return x.detach() if isinstance(x, torch.Tensor) else x


def tensor_of(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return torch.from_numpy(leaf if leaf.flags.writeable else leaf.copy())  # PyTorch has no read-only tensors
    return torch.as_tensor(leaf) if isinstance(leaf, np.generic) else leaf


def array_of(x: Any) -> Any:
    if not isinstance(x, torch.Tensor):
        return np.asarray(x)
    return x.numpy() if x.is_cpu and not x.requires_grad else x.detach().cpu().numpy()


class TorchBackend(Backend):
    """PyTorch on the CPU or on whatever accelerators it finds."""

    name = "torch"
    ops: Ops = make_ops(
        compat,
        matmul=torch.matmul,
        relu=torch.relu,
        softplus=softplus,
        logsumexp=logsumexp,
        log_softmax=log_softmax,
        erf=torch.erf,
        one_hot=one_hot,
        take_along=take_along,
        stop_gradient=detach,
        value_and_grad=value_and_grad,
        scan=loop_scan(torch.stack),
        cond=cond,
        elementwise=elementwise,
        conv2d=conv2d,
        max_pool2d=max_pool2d,
        clip=torch.clamp,
        reshape=reshape,
        astype=astype,
        sum=total,
        mean=mean,
        max=largest,
        min=smallest,
        argmax=argmax,
        cumulative_sum=cumulative_sum,
        maximum=maximum,
        minimum=minimum,
        where=torch.where,
    )

    def from_numpy(self, tree: Tree, devices: Sequence[str] = ()) -> Tree:
        self.check_devices(devices)
        first = _device(devices[0]) if devices else None  # the others get a copy at each loss: see ``spread``
        return map_leaves(lambda leaf: torch.tensor(leaf, device=first), tree)

    def array(self, leaf: Any) -> np.ndarray:
        return array_of(leaf)

    def compile(
        self,
        fn: Callable[..., Any],
        donate: Sequence[int] = (),
        devices: Sequence[str] = (),
        shared: Sequence[Space | None] = (),
    ) -> Callable[..., Any]:
        self.check_devices(devices)
        return _compiler(devices[0] if devices else "cpu:0")(fn)  # no graph is built outside of value_and_grad

    def spread(
        self,
        loss: Callable[..., Any],
        devices: Sequence[str],
        spaces: Sequence[Space | None],
        axes: Mapping[str, int],
    ) -> Callable[..., Any]:
        self.check_devices(devices)
        targets = [_device(name) for name in devices]

        def run(*args: Any) -> Any:
            along = [batch_axes(arg, space) for arg, space in zip(args, spaces, strict=True)]
            for arg, axis in zip(args, along):
                check_shares(arg, axis, devices)
            results, weights, captures = [], [], []
            for i, target in enumerate(targets):
                share = [_share(arg, axis, i, targets) for arg, axis in zip(args, along)]
                with target:
                    result, (_, captured) = with_captures(lambda *values: (loss(*values), None))(*share)
                results.append(result)
                weights.append(_moved(weight_of(share, along), targets[0]))
                captures.append(captured)
            capture_all(captures[0])  # a fair sample: which of a captured value's axes is the batch's is not known
            return _combined(results, weights, axes, targets[0])

        return run

    def wait(self, tree: Tree) -> None:
        """Nothing to wait for: on the CPU a call returns with its result, and arguments of others are copied there."""

    def prefer_one_thread(self) -> None:
        torch.set_num_threads(1)

    def devices(self) -> list[str]:
        return ["cpu:0", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]

    def sees(self, device: str) -> bool:
        # The processor is one device under any number; ``meta`` computes shapes alone.
        return device.partition(":")[0] in ("cpu", "meta") or device in self.devices()


def _device(name: str) -> Any:
    return torch.device("cpu") if name.startswith("cpu") else torch.device(name)


def _moved(x: Any, target: Any) -> Any:
    return emit(torch.Tensor.to, x, target) if _is_array(x) else x


def _is_array(x: Any) -> bool:
    return isinstance(x, (torch.Tensor, Tracer))


def _share(tree: Tree, axes: Tree, index: int, targets: Sequence[Any]) -> Tree:
    """What one of several devices computes with: its part of arrays with rows, the whole of others."""

    def part(x: Any, axis: int | None) -> Any:
        if axis is not None:
            x = emit(torch.narrow, x, axis, *share_of(x.shape[axis], index, len(targets)))
        return _moved(x, targets[index])

    return map_leaves(part, tree, axes)


def _combined(results: Sequence[Any], weights: Sequence[Any], axes: Mapping[str, int], first: Any) -> Any:
    """The result of the whole batch on the first device."""
    total = sum(weights)
    total = emit(torch.clamp, total, min=1.0) if _is_array(total) else total  # no row counts: nothing is learned

    def join(parts: Sequence[Any], axis: int) -> Any:
        return emit(torch.cat, [_moved(part, first) for part in parts], axis)

    def mean(parts: Sequence[Any]) -> Any:
        if not _is_array(parts[0]) or not parts[0].dtype.is_floating_point:
            return parts[0]  # a number that does not depend on the rows
        return sum(_moved(part, first) * (weight / total) for part, weight in zip(parts, weights))

    return merged(results, axes, join, mean)


@cache
def _compiler(device: str) -> TracingCompiler:
    """What compiles for a device: NumPy arguments are moved there, and new arrays made there."""
    target = _device(device)
    if target.type == "cpu":
        return TracingCompiler(backend.ops, tensor_of, SHORTCUTS)
    return TracingCompiler(backend.ops, lambda leaf: _moved(tensor_of(leaf), target), SHORTCUTS, around=target)


keep_freed_memory()  # an update from 42×42 images, in minibatches of 512: 0.6 s in place of 0.9
backend = TorchBackend()
register_ops(torch.Tensor, backend.ops)
