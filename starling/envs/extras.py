"""Extras: entries of ``info`` that were asked for, as arrays [B, …].

A number is carried as float32, a truth value as bool, an array in its own type (float64 as float32). What an entry
looks like is found when the environments are made; from then on it must come with every step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from starling.core.spaces import Bool, Dict, Float, Leaf, Space, space_of
from starling.envs.observations import Unfit, all_finite
from starling.envs.promises import shown

__all__ = ["CRASHED", "ExtrasCodec", "extras_codec", "missing"]

CRASHED = "starling.crashed"  # in the info of a step that crashed: there is nothing to take from it


class ExtrasCodec:
    """Takes the extras out of infos."""

    def __init__(self, spaces: Mapping[str, Leaf]) -> None:
        self.leaves = dict(spaces)
        self.space = Dict(spaces)

    def stack(self, infos: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
        """The extras of one info per row."""
        return {key: self.fit(key, [self._entry(info, key) for info in infos]) for key in self.leaves}

    def fit(self, key: str, values: Any) -> np.ndarray:
        """The values [B, …] of one extra, checked and in their type."""
        leaf, array = self.leaves[key], np.array(values)
        if array.shape[1:] != leaf.shape:
            raise Unfit(f"at {key!r}: shape {list(array.shape[1:])} arrived, {list(leaf.shape)} was expected")
        if not np.can_cast(array.dtype, leaf.numpy_dtype, "same_kind"):
            raise Unfit(f"at {key!r}: dtype {array.dtype} arrived, {leaf.dtype} was expected")
        array = array.astype(leaf.numpy_dtype)
        if array.dtype.kind == "f" and not all_finite(array):
            raise Unfit(f"at {key!r}: {array.tolist()!r:.80} arrived, finite numbers were expected")
        return array

    def zeros(self, count: int) -> dict[str, np.ndarray]:
        """The extras of rows that have none."""
        return self.space.ranked(batch=True).zeros((count,))

    def _entry(self, info: Mapping[str, Any], key: str) -> Any:
        if key in info:
            return info[key]
        if CRASHED in info:
            return self.leaves[key].zeros()
        raise missing(key, info)


def extras_codec(names: Sequence[str], info: Mapping[str, Any]) -> ExtrasCodec:
    """The codec of the entries ``names``, which look like those of ``info``."""
    if not isinstance(info, Mapping):
        raise Unfit(f"info={shown(info)} arrived, a dict was expected")
    for name in names:
        if name not in info:
            raise missing(name, info)
    return ExtrasCodec({name: _space_of_extra(name, info[name]) for name in names})


def missing(name: str, info: Mapping[str, Any]) -> Unfit:
    keys = [key for key in sorted(map(str, info)) if not key.startswith("_")]
    return Unfit(
        f"info has no {name!r}, which was asked for as an extra; keys {keys} arrived. Deliver it at every step, or do "
        "not ask for it"
    )


def _space_of_extra(name: str, value: Any) -> Leaf:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise Unfit(f"info's {name!r} is {value!r:.60}; numbers and arrays of them can be extras") from error
    if array.dtype.kind == "b":
        return Bool(array.shape)
    if array.dtype.kind == "f" or (array.dtype.kind in "iu" and not array.shape):
        return Float(array.shape)
    space: Space | None = space_of(array) if array.dtype.kind in "iu" else None
    if not isinstance(space, Leaf):
        raise Unfit(f"info's {name!r} is {value!r:.60}; numbers and arrays of them can be extras")
    return space
