"""PyTorch: define-by-run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from starling.backends.tracing import TracingCompiler, emit
from starling.core.machine import keep_freed_memory
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

    def from_numpy(self, tree: Tree, device: str | None = None) -> Tree:
        place = None if device is None else self._device(device)
        return map_leaves(lambda leaf: torch.tensor(leaf, device=place), tree)

    def array(self, leaf: Any) -> np.ndarray:
        return array_of(leaf)

    def compile(self, fn: Callable[..., Any], donate: Sequence[int] = ()) -> Callable[..., Any]:
        return _compile(fn)  # parameters ask for no gradient outside value_and_grad: no graph is built

    def prefer_one_thread(self) -> None:
        torch.set_num_threads(1)

    def devices(self) -> list[str]:
        return ["cpu:0", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]

    def place(self, tree: Tree, device: str) -> Tree:
        target = self._device(device)
        return map_leaves(lambda x: x.to(target), tree)

    def _device(self, name: str) -> Any:
        self.check_device(name)
        return torch.device("cpu") if name.startswith("cpu") else torch.device(name)


keep_freed_memory()  # an update from 42×42 images, in minibatches of 512: 0.6 s in place of 0.9
backend = TorchBackend()
register_ops(torch.Tensor, backend.ops)
_compile = TracingCompiler(backend.ops, tensor_of, SHORTCUTS)
