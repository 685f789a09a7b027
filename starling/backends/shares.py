"""Shares: a batch divided among devices, each of which gets about as many of its rows.

The space of a value says where its rows lie: along axis 0 of [B, …], axis 1 of [T, B, …].
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starling.backends.dispatch import ops
from starling.core.errors import ConfigError
from starling.core.spaces import Dict, Leaf, Space, Tuple
from starling.core.trees import Tree, items, map_leaves

__all__ = ["batch_axes", "check_shares", "merged", "share_of", "weight_of"]

MASK = "mask"  # the entry of a batch that is 1 where a row counts: a mean over the batch is one over these


def batch_axes(tree: Tree, space: Space | None) -> Tree:
    """The batch axis of each array of ``tree``, None for an array without one.

    Dimensions in front of those that the space knows, as batches have that are stacked for several updates, come before
    the batch axis.
    """
    match space:
        case Dict():
            return {key: batch_axes(child, space.spaces.get(key)) for key, child in tree.items()}
        case Tuple():
            return tuple(batch_axes(child, part) for child, part in zip(tree, space.spaces, strict=True))
        case Leaf(batch=True):
            return len(tree.shape) - len(space.shape) - 1
    return map_leaves(lambda leaf: None, tree)


def check_shares(tree: Tree, axes: Tree, devices: Sequence[str]) -> None:
    """Refuse a batch with fewer rows than there are devices."""
    counts = map_leaves(lambda leaf, axis: len(devices) if axis is None else leaf.shape[axis], tree, axes)
    for path, rows in items(counts):
        if rows < len(devices):
            what = f"{path!r} of a batch" if path else "a batch"
            raise ConfigError(
                f"{what} has {rows} rows, too few for the {len(devices)} devices {', '.join(devices)}; name fewer "
                "devices, or learn from larger batches."
            )


def share_of(rows: int, index: int, count: int) -> tuple[int, int]:
    """The first row and the number of rows of one share of ``count``."""
    start, end = index * rows // count, (index + 1) * rows // count
    return start, end - start


def weight_of(args: Sequence[Tree], axes: Sequence[Tree]) -> Any:
    """How much a share counts in a mean over the batch: its rows or, where a mask says of each, those that count."""
    for arg, found in zip(args, axes):
        if isinstance(arg, dict) and MASK in arg and found[MASK] == len(arg[MASK].shape) - 1:
            xp = ops(arg[MASK])
            return xp.sum(xp.astype(arg[MASK], xp.float32))
    counts = map_leaves(lambda leaf, axis: None if axis is None else leaf.shape[axis], list(args), list(axes))
    return float(next((rows for _, rows in items(counts)), 1))


def merged(
    parts: Sequence[Any],
    axes: Mapping[str, int],
    join: Callable[[Sequence[Any], int], Any],
    mean: Callable[[Sequence[Any]], Any],
    path: str = "",
) -> Any:
    """One result from those of every share: arrays with rows are joined, others averaged; ``axes`` is by path."""

    def inner(key: Any, children: Sequence[Any]) -> Any:
        return merged(children, axes, join, mean, f"{path}.{key}" if path else str(key))

    first = parts[0]
    if isinstance(first, dict):
        return type(first)((key, inner(key, [part[key] for part in parts])) for key in first)
    if isinstance(first, (tuple, list)):
        children = [inner(i, column) for i, column in enumerate(zip(*parts, strict=True))]
        return type(first)(*children) if hasattr(first, "_fields") else type(first)(children)
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        fields = [field.name for field in dataclasses.fields(first) if field.init]
        return dataclasses.replace(first, **{name: inner(name, [getattr(p, name) for p in parts]) for name in fields})
    if first is None:
        return None
    return join(parts, axes[path]) if path in axes else mean(parts)
