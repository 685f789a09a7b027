"""Which leaves of items are images, and what a table with images takes at the least."""

from __future__ import annotations

import numpy as np

from starling.core.spaces import Dict, Leaf
from starling.data.tables.layout import HEADER, Columns

__all__ = ["IMAGE_RANK", "image_leaves", "least_bytes", "planes_of", "stack_axis"]

IMAGE_RANK, LEAST_BYTES = 3, 4_096  # of observations that lie in a pool of frames
MOST_PLANES = 16  # of an image that may be a stack of frames


def image_leaves(signature: Dict) -> dict[str, Leaf]:
    """The leaves of items that should lie in a pool, by path."""
    return {path: leaf for path, leaf in signature.items() if _is_image(leaf)}


def _is_image(leaf: Leaf) -> bool:
    return leaf.numpy_dtype == np.uint8 and len(leaf.shape) >= IMAGE_RANK and leaf.size >= LEAST_BYTES


def stack_axis(shape: tuple[int, ...]) -> int | None:
    """Along which axis an image may be a stack of planes: the last, or else the first; None where it is none."""
    image = shape[-IMAGE_RANK:]
    return -1 if image[-1] <= MOST_PLANES else 0 if image[0] <= MOST_PLANES else None


def planes_of(shape: tuple[int, ...]) -> int:
    """How many planes an image may be a stack of; 1 where it is none."""
    axis = stack_axis(shape)
    return 1 if axis is None else shape[-IMAGE_RANK:][axis]


def least_bytes(signature: Dict, capacity: int) -> dict[str, int]:
    """Bytes that ``capacity`` items take at the least: each brings one frame that no other has, of a stack one plane.

    How many more there are, only the items tell; see ``estimates``.
    """
    images = image_leaves(signature)
    rows = {path: size for path, size in Columns(signature, capacity).bytes_by_leaf().items() if path not in images}
    shapes = {leaf.shape[-IMAGE_RANK:] for leaf in images.values()}  # images of one shape share a pool
    frames = sum(capacity * int(np.prod(shape)) // planes_of(shape) for shape in shapes)
    return {
        "table": sum(rows.values()) + HEADER.itemsize * capacity,
        **({"frames, at least": frames} if frames else {}),
    }
