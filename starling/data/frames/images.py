"""Which leaves of items are images, and what a table with images takes at the least."""

from __future__ import annotations

import numpy as np

from starling.core.spaces import Dict, Leaf
from starling.data.tables.layout import HEADER, Columns

__all__ = ["IMAGE_RANK", "MOST_PLANES", "image_leaves", "least_bytes"]

IMAGE_RANK, LEAST_BYTES = 3, 4_096  # of observations that lie in a pool of frames
MOST_PLANES = 16  # along the last axis of an image that is taken for a stack of frames


def image_leaves(signature: Dict) -> dict[str, Leaf]:
    """The leaves of items that should lie in a pool, by path."""
    return {path: leaf for path, leaf in signature.items() if _is_image(leaf)}


def _is_image(leaf: Leaf) -> bool:
    return leaf.numpy_dtype == np.uint8 and len(leaf.shape) >= IMAGE_RANK and leaf.size >= LEAST_BYTES


def least_bytes(signature: Dict, capacity: int) -> dict[str, int]:
    """Bytes that ``capacity`` items take at the least: each brings one frame that no other has, of a stack one plane.

    How many more there are, only the items tell; see ``estimates``.
    """
    images = image_leaves(signature)
    rows = {path: size for path, size in Columns(signature, capacity).bytes_by_leaf().items() if path not in images}
    shapes = {leaf.shape[-IMAGE_RANK:] for leaf in images.values()}  # images of one shape share a pool
    planes = [shape[:-1] if shape[-1] <= MOST_PLANES else shape for shape in shapes]
    frames = sum(capacity * int(np.prod(plane)) for plane in planes)
    return {
        "table": sum(rows.values()) + HEADER.itemsize * capacity,
        **({"frames, at least": frames} if frames else {}),
    }
