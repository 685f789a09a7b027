"""Observations that a program hands in, in place of an environment of ours: checked, copied, and as we carry them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from starling.core.errors import DataError
from starling.core.spaces import Bool, Int, Leaf, Space
from starling.core.trees import Tree, items, map_with_path
from starling.envs.spaces import from_gymnasium

__all__ = ["GivenObservations"]


class GivenObservations:
    """Of a space of ours or of Gymnasium's.

    As in training, a number just outside the bounds is a matter of the environment's own rounding.
    """

    def __init__(self, space: Space | gym.Space[Any]) -> None:
        self.space = space if isinstance(space, Space) else from_gymnasium(space)
        self._starts = {} if isinstance(space, Space) else dict(_starts(space))  # of whole numbers; ours are from 0

    def fitting(self, observations: Tree, what: str) -> Tree:
        """A copy of observations [B, …] with the dtypes of their space; refuses what does not fit it."""
        given, spaces = dict(items(observations)), dict(self.space.items())
        if given.keys() != spaces.keys():
            arrived = f"a dict of {', '.join(given)}" if isinstance(observations, dict) else type(observations).__name__
            raise DataError(f"{what}: {arrived} arrived; a dict was expected, as in {self.space}.")
        copies = {
            path: self._copy(np.asarray(given[path]), leaf, path, f"{what}{f' at {path!r}' if path else ''}")
            for path, leaf in spaces.items()
        }
        return map_with_path(lambda path, _: copies[path], self.space.zeros())

    def _copy(self, x: np.ndarray, leaf: Leaf, path: str, where: str) -> np.ndarray:
        if path in self._starts and x.dtype.kind in "iu":
            x = x - self._starts[path]
        if x.ndim < 1 or x.shape[1:] != leaf.shape:
            raise DataError(f"{where}: shape {list(x.shape)} arrived, [B, {', '.join(map(str, leaf.shape))}] expected.")
        spelt = isinstance(leaf, Bool) and x.dtype.kind in "iu"  # truth values, as masks often come
        if not (spelt or np.can_cast(x.dtype, leaf.numpy_dtype, "same_kind")):
            raise DataError(f"{where}: {x.dtype} arrived, {leaf.dtype} was expected.")
        copy = np.array(x, leaf.numpy_dtype)
        if copy.dtype.kind == "f" and not np.isfinite(copy).all():
            raise DataError(f"{where}: a number that is not finite arrived.")
        if isinstance(leaf, Int) and ((x < leaf.low) | (x >= leaf.high)).any():
            raise DataError(f"{where}: a number outside {leaf} arrived.")
        return copy


def _starts(space: gym.Space[Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Where the numbers of each discrete part of a Gymnasium space begin, by path."""
    if isinstance(space, (gym.spaces.Discrete, gym.spaces.MultiDiscrete)):
        yield path, np.asarray(space.start)
    elif isinstance(space, gym.spaces.Dict):
        for key, child in space.spaces.items():
            yield from _starts(child, f"{path}.{key}" if path else key)
    elif isinstance(space, gym.spaces.Tuple):
        for i, child in enumerate(space.spaces):
            yield from _starts(child, f"{path}.{i}" if path else str(i))
