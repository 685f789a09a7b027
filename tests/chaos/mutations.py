"""Damaged inputs: bytes and plain values changed at random, as a bad disk, a bug or an attacker would."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__all__ = ["mutated_bytes", "mutated_value"]

NUMBERS = (0, -1, 1, 2**31 - 1, 2**31, -(2**31), 2**40, 2**63 - 1, 2**64, -(2**63), 10**400)
VALUES = (None, True, "", "x" * 10_000, [], {}, [[[[]]]], math.nan, math.inf, -math.inf, 0.5, 1e308, *NUMBERS)
PIECES = (b"\x00", b"\xff" * 8, b"{", b"[" * 200, b'"', b"\n", b"1e999", b"../../x", (2**63 - 1).to_bytes(8, "little"))


def mutated_bytes(rng: np.random.Generator, data: bytes) -> bytes:
    """The bytes with one to four changes."""
    for _ in range(int(rng.integers(1, 5))):
        change = _CHANGES[int(rng.integers(len(_CHANGES)))]
        data = change(rng, data)
    return data


def mutated_value(rng: np.random.Generator, value: Any) -> Any:
    """A tree of plain values in which one to three parts are others, gone, or there twice."""
    value = copy.deepcopy(value)
    for _ in range(int(rng.integers(1, 4))):
        places = list(_places(value))
        if not places:
            return _odd(rng)
        parent, key = places[int(rng.integers(len(places)))]
        match int(rng.integers(4)):
            case 0:
                del parent[key]
            case 1 if isinstance(parent, dict):
                parent[f"{key}~"] = parent.pop(key)
            case 1:
                parent.append(parent[key])
            case _:
                parent[key] = _odd(rng)
    return value


def _odd(rng: np.random.Generator) -> Any:
    return copy.deepcopy(VALUES[int(rng.integers(len(VALUES)))])


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Where a part of the value stands: the container that has it, and its key or index there."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in list(children):
        yield value, key
        yield from _places(child)


def _flip(rng: np.random.Generator, data: bytes) -> bytes:
    if not data:
        return data
    place = int(rng.integers(len(data)))
    return data[:place] + bytes([data[place] ^ 1 << int(rng.integers(8))]) + data[place + 1 :]


def _cut(rng: np.random.Generator, data: bytes) -> bytes:
    return data[: int(rng.integers(len(data) + 1))]


def _remove(rng: np.random.Generator, data: bytes) -> bytes:
    first, last = sorted(rng.integers(0, len(data) + 1, 2).tolist())
    return data[:first] + data[last:]


def _double(rng: np.random.Generator, data: bytes) -> bytes:
    first, last = sorted(rng.integers(0, len(data) + 1, 2).tolist())
    return data[:last] + data[first:]


def _insert(rng: np.random.Generator, data: bytes) -> bytes:
    place, piece = int(rng.integers(len(data) + 1)), PIECES[int(rng.integers(len(PIECES)))]
    return data[:place] + piece + data[place:]


def _overwrite(rng: np.random.Generator, data: bytes) -> bytes:
    place, piece = int(rng.integers(len(data) + 1)), PIECES[int(rng.integers(len(PIECES)))]
    return data[:place] + piece + data[place + len(piece) :]


_CHANGES: tuple[Callable[[np.random.Generator, bytes], bytes], ...] = (
    _flip,
    _cut,
    _remove,
    _double,
    _insert,
    _overwrite,
)
