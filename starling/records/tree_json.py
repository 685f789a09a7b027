"""Trees as JSON: structure and small leaves in text, arrays by name.

``null``, truth values, strings, finite floats and small integers stand for themselves and a JSON list for a list;
everything else is an object with one key that says what it is:

    {"dict": {…}}  {"tuple": […]}  {"int": "0x…"}  {"float": "nan"}  {"array": name}  {"scalar": name}
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from starling.core.errors import CheckpointError
from starling.core.trees import Tree
from starling.records.tensors import can_store

__all__ = ["decode", "encode"]

_EXACT = 2**53  # integers up to here survive every JSON reader


def encode(tree: Tree) -> tuple[Any, dict[str, np.ndarray]]:
    """The tree's JSON form, and the arrays that it names."""
    arrays: dict[str, np.ndarray] = {}
    try:
        return _encode(tree, "", arrays), arrays
    except RecursionError:
        raise CheckpointError("the tree is nested too deeply, or contains itself; flatten it.") from None


def _encode(node: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    if node is None or isinstance(node, bool):
        return node
    if isinstance(node, np.ndarray):
        return {"array": _store(node, path, arrays)}
    if isinstance(node, np.generic) and not isinstance(node, (float, str, bytes)):
        return {"scalar": _store(np.asarray(node), path, arrays)}
    if isinstance(node, int):
        return int(node) if abs(node) <= _EXACT else {"int": hex(node)}
    if isinstance(node, float):
        return float(node) if math.isfinite(node) else {"float": repr(float(node))}
    if isinstance(node, str):
        return str(node)
    if isinstance(node, dict):
        wrong = next((key for key in node if not isinstance(key, str)), None)
        if wrong is not None:
            raise CheckpointError(f"{_at(path)}: the key {wrong!r} is no string; checkpoints hold dicts of strings.")
        return {"dict": {str(key): _encode(child, _join(path, key), arrays) for key, child in node.items()}}
    if isinstance(node, (tuple, list)):
        children = [_encode(child, _join(path, i), arrays) for i, child in enumerate(node)]
        return children if isinstance(node, list) else {"tuple": children}
    raise CheckpointError(
        f"{_at(path)}: a {type(node).__module__}.{type(node).__qualname__} cannot be stored; "
        "convert it to NumPy arrays, numbers, strings, or lists, tuples and dicts of them."
    )


def decode(node: Any, arrays: Mapping[str, np.ndarray], where: str) -> Tree:
    """The tree of a JSON form; a form that ``encode`` never writes is refused."""
    try:
        return _decode(node, arrays)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as reason:
        kind = type(reason).__name__
        raise CheckpointError(f"{where} describes no tree that Starling writes ({kind}: {reason!s:.200}).") from reason


def _decode(node: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if isinstance(node, list):
        return [_decode(child, arrays) for child in node]
    if not isinstance(node, dict):
        return node
    if len(node) != 1:
        raise ValueError(f"an object with the keys {sorted(node)[:5]}")
    ((kind, value),) = node.items()
    match kind:
        case "dict":
            return {key: _decode(child, arrays) for key, child in value.items()}
        case "tuple" if isinstance(value, list):
            return tuple(_decode(child, arrays) for child in value)
        case "array":
            return arrays[value]
        case "scalar" if arrays[value].shape == ():
            return arrays[value][()]
        case "int":
            return int(value, 16)
        case "float" if value in ("nan", "inf", "-inf"):
            return float(value)
    raise ValueError(f"an object of the kind {kind!r}")


def _store(array: np.ndarray, path: str, arrays: dict[str, np.ndarray]) -> str:
    """Keep the array under its path, or, where that is taken or reserved, under the next free name."""
    if not can_store(array.dtype):
        raise CheckpointError(
            f"{_at(path)}: arrays of dtype {array.dtype} cannot be stored; convert it to float, int, uint or bool."
        )
    name = path.encode("utf-8", "backslashreplace").decode()
    while name in arrays or name in ("", "__metadata__"):
        name += "~"
    arrays[name] = array
    return name


def _join(path: str, key: str | int) -> str:
    return f"{path}.{key}" if path else str(key)


def _at(path: str) -> str:
    return f"at {path!r}" if path else "at the root"
