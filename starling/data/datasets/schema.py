"""Spaces as plain data and back: how a signature is written into a file."""

from __future__ import annotations

from typing import Any

import numpy as np

from starling.core.errors import DataError
from starling.core.spaces import Bool, Dict, Float, Int, Leaf, Space, Tuple

__all__ = ["space_from_plain", "space_to_plain"]

LEAVES: dict[str, type[Leaf]] = {"float": Float, "int": Int, "bool": Bool}


def _bound(value: Any) -> Any:
    """A bound that JSON can hold: infinities as words."""
    if np.ndim(value):
        return np.asarray(value).tolist()
    return value if np.isfinite(value) else str(float(value))


def space_to_plain(space: Space) -> dict[str, Any]:
    """The space as dicts, lists, strings and numbers."""
    if isinstance(space, Dict):
        return {"dict": {key: space_to_plain(child) for key, child in space.spaces.items()}}
    if isinstance(space, Tuple):
        return {"tuple": [space_to_plain(child) for child in space.spaces]}
    kind = next((name for name, leaf in LEAVES.items() if isinstance(space, leaf)), None)
    if kind is None or not isinstance(space, Leaf):
        raise DataError(f"{space} is none of {sorted(LEAVES)}, dict and tuple; it cannot be written to a file.")
    bounds = {"low": _bound(space.low), "high": _bound(space.high)}
    return {"kind": kind, "shape": list(space.shape), "dtype": space.dtype, **bounds}


def space_from_plain(plain: Any) -> Space:
    """The space that ``space_to_plain`` described; DataError where it is no such description."""
    try:
        if "dict" in plain:
            return Dict({key: space_from_plain(child) for key, child in plain["dict"].items()})
        if "tuple" in plain:
            return Tuple(*(space_from_plain(child) for child in plain["tuple"]))
        low, high = (float(b) if isinstance(b, str) else b for b in (plain["low"], plain["high"]))
        low, high = (np.asarray(b) if isinstance(b, list) else b for b in (low, high))
        return LEAVES[plain["kind"]](tuple(plain["shape"]), low, high, plain["dtype"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DataError(f"{plain!r:.80} does not describe a space: {error!r}.") from error
