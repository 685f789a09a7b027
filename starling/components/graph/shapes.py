"""Shapes in words: how assembled values are described, and what an API may expect of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from starling.core.spaces import Dict, Space, Tuple, space_of
from starling.core.trees import items, opened

__all__ = ["SIZES", "batch_axis", "describe", "ranked_space", "violation"]

# Odd sizes for the ranks whose size is not known while assembling, so that they are recognised further down.
SIZES = {"batch": 13, "time": 11}
_LETTERS = {13: "B", 11: "T", 143: "TB"}
_KINDS = {"float": np.floating, "int": np.integer, "bool": np.bool_}


def describe(value: Any) -> str:
    """A tree of arrays in words: ``float32[B, 4]``; an object that holds arrays is named: ``Categorical{…}``."""
    found = [(path, leaf) for path, leaf in items(opened(value)) if isinstance(leaf, (np.ndarray, np.generic))]
    kind = "" if isinstance(value, (dict, tuple, list, type(None), np.ndarray, np.generic)) else type(value).__name__
    if not found:
        return kind
    if len(found) == 1 and not found[0][0]:
        return _describe_array(found[0][1])
    return kind + "{" + ", ".join(f"{path}: {_describe_array(leaf)}" for path, leaf in found) + "}"


def _describe_array(array: Any) -> str:
    # Ranks lead, time before batch: an 11 behind a batch is a size, not a time.
    dims = [str(n) for n in np.shape(array)]
    if np.shape(array)[:1] in [(size,) for size in _LETTERS]:
        dims[0] = _LETTERS[np.shape(array)[0]]
    if np.shape(array)[:2] == (SIZES["time"], SIZES["batch"]):
        dims[1] = "B"
    return f"{array.dtype}[{', '.join(dims)}]"


def batch_axis(array: Any) -> int | None:
    """The axis along which the rows of an assembled array lie; None where it has none."""
    shape = np.shape(array)
    if shape[:2] == (SIZES["time"], SIZES["batch"]):
        return 1
    return 0 if shape[:1] in [(SIZES["batch"],), (SIZES["time"] * SIZES["batch"],)] else None


def ranked_space(value: Any) -> Space | None:
    """The space of an assembled value, with its ranks; None for what holds no arrays, such as parameters."""
    if isinstance(value, Mapping):
        return Dict({key: space for key, child in value.items() if (space := ranked_space(child))})
    if isinstance(value, (tuple, list)):
        return Tuple(*(ranked_space(child) or Dict() for child in value))
    if not isinstance(value, (np.ndarray, np.generic)):
        return None
    axis = batch_axis(value)
    lead = 0 if axis is None else axis + 1
    return space_of(np.zeros(np.shape(value)[lead:], value.dtype)).ranked(batch=lead > 0, time=lead > 1)


def violation(pattern: str, value: Any) -> str | None:
    """Why ``value`` does not follow ``pattern`` (see ``api``), or None where it does."""
    if not isinstance(value, (np.ndarray, np.generic)):
        return f"{describe(value) or 'None'} arrived, one array [{pattern}] was expected"
    kind, *rest = pattern.split() or [""]
    names = rest if kind in _KINDS else pattern.split()
    if kind in _KINDS and not np.issubdtype(value.dtype, _KINDS[kind]):
        return f"{describe(value)} arrived, {kind} was expected"
    fixed = [name for name in names if name != "*"]
    shape = np.shape(value)
    fits = len(shape) >= len(fixed) if "*" in names else len(shape) == len(fixed)
    trailing = shape[len(shape) - len(fixed) :]
    if not fits or any(name.isdigit() and int(name) != n for name, n in zip(fixed, trailing)):
        return f"{describe(value)} arrived, [{', '.join(names)}] was expected"
    return None
