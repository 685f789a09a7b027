"""Whether observations stay within the bounds that their space declares.

An environment that leaves them is not refused: many do by oversight, and the bounds matter only to what scales by them.
So a run looks at its first steps and then at a few, and warns once.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np

from starling.core.spaces import Leaf, Space
from starling.core.trees import Tree, items
from starling.envs.promises import Broken

__all__ = ["NEVER", "BoundsWatch", "OutOfBounds", "outside_bounds"]

NEVER = 2**62  # a step that no run reaches
FIRST = 64  # steps that are all looked at
EVERY = 512  # steps of which one is looked at later
SLACK = 1e-5  # of a bound, or of 1 where it is smaller: the environment's own rounding

_warned: set[str] = set()  # names of environments that this process has been warned of


class OutOfBounds(UserWarning):
    """An observation that its space does not contain."""


class BoundsWatch:
    """Warns of the first observation out of bounds that it sees, once per name in a process."""

    def __init__(self, name: str, space: Space) -> None:
        self._name, self._bounds = name, _bounds(space)
        self.next = 0 if self._bounds and name not in _warned else NEVER  # the step to look at next

    def look(self, obs: Tree, step: int) -> None:
        """Look at the observations [B, …] of a step, if it is time to."""
        if step < self.next:
            return
        self.next = step + (1 if step < FIRST else EVERY)
        broken = _first_outside(self._bounds, obs)
        if broken is None:
            return
        self.next = NEVER
        if self._name not in _warned:
            _warned.add(self._name)
            warnings.warn(f"{self._name}: {broken} This is told once.", OutOfBounds, stacklevel=3)


class LeafBounds(NamedTuple):
    """The bounds of a leaf, and the numbers up to which leaving them is rounding."""

    low: np.ndarray
    high: np.ndarray
    least: np.ndarray
    most: np.ndarray

    def beyond(self, array: np.ndarray) -> np.ndarray:
        """Which numbers of a batch [B, …] lie outside."""
        return (array < self.least) | (array > self.most)


def outside_bounds(space: Space, obs: Tree) -> Broken | None:
    """Where observations [B, …] are out of bounds; None where they are within."""
    return _first_outside(_bounds(space), obs)


def _bounds(space: Space) -> dict[str, LeafBounds]:
    """The bounds of the leaves whose type holds numbers beyond them, by path."""
    found = {path: _bounds_of(leaf) for path, leaf in space.items()}
    return {path: bounds for path, bounds in found.items() if bounds is not None}


def _bounds_of(leaf: Leaf) -> LeafBounds | None:
    low, high = np.asarray(leaf.low), np.asarray(leaf.high)
    if leaf.numpy_dtype.kind == "f":
        least, most = (low - SLACK * np.maximum(1, np.abs(low)), high + SLACK * np.maximum(1, np.abs(high)))
        return LeafBounds(low, high, least, most) if np.isfinite(low).any() or np.isfinite(high).any() else None
    if leaf.numpy_dtype.kind in "iu":
        last, of_type = high - 1, np.iinfo(leaf.dtype)
        narrow = (low > of_type.min).any() or (last < of_type.max).any()
        return LeafBounds(low, last, low, last) if narrow else None
    return None


def _first_outside(bounds: dict[str, LeafBounds], obs: Tree) -> Broken | None:
    for path, array in items(obs):
        if path in bounds and (beyond := bounds[path].beyond(array)).any():
            return _describe(path, array, tuple(np.argwhere(beyond)[0].tolist()), bounds[path])
    return None


def _describe(path: str, array: np.ndarray, place: tuple[int, ...], bounds: LeafBounds) -> Broken:
    low, high = (np.broadcast_to(bound, array.shape)[place] for bound in (bounds.low, bounds.high))
    where = (f" at {path!r}" if path else "") + (f", number {list(place[1:])}," if place[1:] else "")
    return Broken(
        f"the observation{where} is {array[place]:g}, and the bounds are {low:g} and {high:g}",
        "Every observation is in observation_space.",
        "Widen its bounds (components that scale by them would be misled), or clip what is returned.",
    )
