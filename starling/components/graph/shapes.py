"""Shapes in words: how assembled values are described, and what an API may expect of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from starling.core.trees import items, opened

__all__ = ["SIZES", "describe", "violation"]

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
