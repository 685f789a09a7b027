"""A value of a space as the list of its leaves, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from starling.core.errors import DataError
from starling.core.spaces import Dict, Leaf, Space

__all__ = ["flatten_items", "unflatten"]


def flatten_items(space: Space, value: Any) -> list[np.ndarray]:
    """The leaves of ``value`` in the order of ``space.items()``; DataError names the place that does not fit."""
    out: list[np.ndarray] = []
    _flatten_into(space, value, "", out)
    return out


def _flatten_into(space: Space, value: Any, path: str, out: list[Any]) -> None:
    if isinstance(space, Leaf):
        out.append(value if isinstance(value, np.ndarray) else np.asarray(value))
        return
    children: Mapping[Any, Space]
    if isinstance(space, Dict):
        children = space.spaces
        if not isinstance(value, Mapping):
            raise DataError(f"at {path or 'the top'!r}: {type(value).__name__} arrived, a dict was expected.")
        if value.keys() != children.keys():
            raise DataError(f"at {path or 'the top'!r}: keys {sorted(value)} arrived, {sorted(children)} was expected.")
    else:
        children = dict(enumerate(space.spaces))  # type: ignore[attr-defined]
        if not isinstance(value, (tuple, list)) or len(value) != len(children):
            raise DataError(f"at {path or 'the top'!r}: {value!r:.60} arrived, {len(children)} values were expected.")
    for key, child in children.items():
        _flatten_into(child, value[key], f"{path}.{key}" if path else str(key), out)


def unflatten(space: Space, leaves: list[Any]) -> Any:
    """The value of the space that has these leaves, in the order of ``space.items()``."""
    rest = iter(leaves)

    def build(part: Space) -> Any:
        if isinstance(part, Leaf):
            return next(rest)
        if isinstance(part, Dict):
            return {key: build(child) for key, child in part.spaces.items()}
        return tuple(build(child) for child in part.spaces)  # type: ignore[attr-defined]

    return build(space)
