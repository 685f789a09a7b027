"""From gymnasium's spaces to Starling's, and the values that travel between them.

Box (float)      Float, float32            float64 boxes are carried as float32
Box (integer)    Int, dtype kept           an image stays uint8
Discrete         Int((), 0, n)             ``start`` stays in the codec: algorithms count from 0
MultiDiscrete    Int((k,), 0, nvec)        likewise
MultiBinary      Bool
Dict, Tuple      the same, of the above
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from starling.core import spaces
from starling.core.errors import SpaceError

__all__ = ["ACTION_MASK", "SUPPORTED", "from_gymnasium"]

ACTION_MASK = "action_mask"
SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of these"


def from_gymnasium(space: gym.Space[Any], path: str = "") -> spaces.Space:
    """The Starling space that carries the values of ``space``."""
    if isinstance(space, gym.spaces.Box):
        return _from_box(space)
    if isinstance(space, gym.spaces.Discrete):
        return spaces.Int((), 0, int(space.n))
    if isinstance(space, gym.spaces.MultiDiscrete):
        return spaces.Int(space.shape, 0, np.asarray(space.nvec, np.int64))
    if isinstance(space, gym.spaces.MultiBinary):
        return spaces.Bool(space.shape)
    if isinstance(space, gym.spaces.Dict):
        return spaces.Dict({key: _from_entry(key, child, path) for key, child in space.spaces.items()})
    if isinstance(space, gym.spaces.Tuple):
        return spaces.Tuple(*(from_gymnasium(c, _join(path, i)) for i, c in enumerate(space.spaces)))
    place = f" at {path!r}" if path else ""
    raise SpaceError(
        f"the space {type(space).__name__}{place} arrived ({space!r:.120}); supported are {SUPPORTED}. "
        "Wrap the environment so that it uses one of these."
    )


def _from_entry(key: str, space: gym.Space[Any], path: str) -> spaces.Space:
    """An entry of a Dict; a top-level action mask is a truth value per action whatever type it came as."""
    if key == ACTION_MASK and not path and space.shape is not None:
        return spaces.Bool(space.shape)
    return from_gymnasium(space, _join(path, key))


def _from_box(space: gym.spaces.Box) -> spaces.Leaf:
    dtype = np.dtype(space.dtype)
    if dtype.kind == "f":
        return spaces.Float(space.shape, space.low.astype(np.float32), space.high.astype(np.float32))
    # One past the top of uint64 fits no NumPy integer: the last value of that type is given up.
    top = np.minimum(space.high.astype(object), 2**64 - 2) + 1
    wide = np.uint64 if dtype == np.uint64 else np.int64
    fits = space.high.size == 0 or int(top.max()) <= np.iinfo(wide).max
    high = top.astype(wide) if fits else int(top.max())
    return spaces.Int(space.shape, space.low.astype(wide), high, dtype.name)


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)
