"""How large a pool of frames must be, estimated from a sample of items.

    images = image_leaves(signature)
    planes = estimate(images, sample, capacity)
    table = Table(signature, capacity, shared=pools_for(images, planes))

Only items tell how many different frames there are: those of a game recur in many stacks, those of other environments
in an observation and in the one before it, or nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from starling.core.spaces import Int, Leaf
from starling.core.trees import Tree, items, leaves
from starling.data.frames.images import IMAGE_RANK, planes_of, stack_axis
from starling.data.frames.pool import FramePool

__all__ = ["Planes", "estimate", "most_frames", "pools_for"]

SPARE = 1.1  # frames in a pool for every one that is expected


class Planes(NamedTuple):
    """What a pool holds."""

    stacked: bool  # whether planes of images recur, as those of stacked frames do, and are kept one by one
    frames: int  # planes, or whole images


def estimate(images: Mapping[str, Leaf], sample: Sequence[Tree], capacity: int) -> Planes:
    """What the pool of a table of ``capacity`` items like those of the sample, batches [N, …] of them, would hold."""
    count = sum(len(leaves(each)[0]) for each in sample)
    whole, planes, depth = set(), set(), 1
    for each in sample:
        flat = dict(items(each))
        for path, leaf in images.items():
            found = flat[path].reshape(-1, *leaf.shape[-IMAGE_RANK:])
            axis, depth = stack_axis(leaf.shape), planes_of(leaf.shape)
            whole |= {image.tobytes() for image in found}
            if axis is not None:
                planes |= {plane.tobytes() for image in found for plane in np.moveaxis(image, axis, 0)}
    stacked = depth > 1 and len(planes) < 0.75 * depth * max(1, len(whole))
    different = len(planes) if stacked else len(whole)
    return Planes(stacked, int(SPARE * capacity * max(1.0, different / max(1, count))) + 64 * depth)


def most_frames(images: Mapping[str, Leaf], capacity: int) -> int:
    """The largest number that ``estimate`` may come to."""
    depths = [planes_of(leaf.shape) for leaf in images.values()]
    planes = sum(math.prod(leaf.shape[:-IMAGE_RANK]) * depth for leaf, depth in zip(images.values(), depths))
    return int(SPARE * capacity * planes) + 64 * max(depths)


def pools_for(images: Mapping[str, Leaf], planes: Planes) -> dict[str, FramePool]:
    """The pool of each leaf; images of one shape share theirs."""
    pools: dict[tuple[Any, ...], FramePool] = {}
    by_path = {}
    for path, leaf in images.items():
        space = Int(leaf.shape[-IMAGE_RANK:], 0, 256, leaf.dtype)
        key = (space.shape, space.dtype)
        if key not in pools:
            axis = stack_axis(space.shape) if planes.stacked else None
            pools[key] = FramePool(space, max(2 * planes_of(space.shape), planes.frames), axis)
        by_path[path] = pools[key]
    return by_path
