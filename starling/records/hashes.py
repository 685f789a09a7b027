"""A fingerprint of parameters: equal trees give equal digests, whatever order built them."""

from __future__ import annotations

import hashlib

import numpy as np

from starling.core.errors import DataError
from starling.core.trees import Tree, items

__all__ = ["parameter_hash"]


def parameter_hash(tree: Tree) -> str:
    """Hex digest (SHA-256) over the path, dtype, shape and bytes of every leaf, in the order of ``trees.items``."""
    digest = hashlib.sha256()
    for path, leaf in items(tree):
        array = np.asarray(leaf)
        if array.dtype.hasobject:
            raise DataError(
                f"parameter_hash: {path!r} is a {type(leaf).__name__}, which has no fixed bytes; "
                "leaves must be arrays, numbers or strings."
            )
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        # The lengths in front keep ("a", "bc") and ("ab", "c") apart.
        head = f"{len(path)}:{path}|{array.dtype.name}|{np.shape(leaf)}|{array.nbytes}:"
        digest.update(head.encode("utf-8", "surrogatepass"))
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
