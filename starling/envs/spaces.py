"""Gymnasium's spaces and Starling's, both ways: the only place that knows which carries which.

    Box (float)      Float, float32            float64 boxes are carried as float32
    Box (bool)       Bool
    Box (integer)    Int, dtype kept           an image stays uint8
    Discrete         Int((), 0, n)             ``start`` stays in the codec: algorithms count from 0
    MultiDiscrete    Int((k,), 0, nvec)        likewise
    MultiBinary      Bool
    Dict, Tuple      the same, of the above

The way back gives a Box for everything but one choice that counts from 0, which is a Discrete: its values are those
that Starling carries, unchanged.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from starling.core import spaces
from starling.core.errors import SpaceError

__all__ = ["ACTION_MASK", "KINDS", "SUPPORTED", "declaration", "declared_space", "from_gymnasium", "to_gymnasium"]

KINDS = ("observation_space", "action_space")  # of spaces, as an environment declares them
ACTION_MASK = "action_mask"
SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of these"


def declared_space(env: Any, kind: str, name: str) -> spaces.Space:
    """The Starling space of what ``env``, called ``name``, declares as ``kind``."""
    declared = declaration(env, kind, name)
    try:
        found = from_gymnasium(declared)
    except SpaceError as error:
        raise SpaceError(f"{name}, {kind}: {error}") from None
    if not found.nbytes:
        raise SpaceError(
            f"{name}, {kind}: {declared} is empty. A space has at least one number; give one that is always 0 where "
            "there is nothing to tell."
        )
    return found


def declaration(env: Any, kind: str, name: str) -> Any:
    """What ``env`` declares as ``kind``."""
    try:
        return getattr(env, kind)
    except AttributeError as error:
        raise SpaceError(
            f"{name}: there is no {kind} ({error}). An environment declares its spaces; set both in its constructor."
        ) from None


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
        f"the space {_kind_of(space)}{place} arrived ({space!r:.120}); supported are {SUPPORTED}. "
        "Declare one of these, of the package gymnasium, or wrap the environment so that it does."
    )


def _kind_of(space: Any) -> str:
    """The name of its class, with the package of a class that is not Gymnasium's: Gym had a Box too."""
    package = type(space).__module__.partition(".")[0]
    return type(space).__name__ if package in ("gymnasium", "builtins") else f"{package}'s {type(space).__name__}"


def _from_entry(key: str, space: gym.Space[Any], path: str) -> spaces.Space:
    """An entry of a Dict; a top-level action mask is a truth value per action whatever type it came as."""
    if key == ACTION_MASK and not path and space.shape is not None:
        return spaces.Bool(space.shape)
    return from_gymnasium(space, _join(path, key))


def _from_box(space: gym.spaces.Box) -> spaces.Leaf:
    dtype = np.dtype(space.dtype)
    if dtype.kind == "b":
        return spaces.Bool(space.shape)
    if dtype.kind == "f":
        with np.errstate(over="ignore"):  # bounds beyond float32 are none
            return spaces.Float(space.shape, space.low.astype(np.float32), space.high.astype(np.float32))
    # One past the top of uint64 fits no NumPy integer: the last value of that type is given up.
    top = np.asarray(np.minimum(space.high.astype(object), 2**64 - 2) + 1, object)
    wide = np.uint64 if dtype == np.uint64 else np.int64
    fits = space.high.size == 0 or int(top.max()) <= np.iinfo(wide).max
    high = top.astype(wide) if fits else int(top.max())
    return spaces.Int(space.shape, space.low.astype(wide), high, dtype.name)


def to_gymnasium(space: spaces.Space) -> gym.Space[Any]:
    """The gymnasium space of the values that ``space`` describes, as Starling carries them."""
    if isinstance(space, spaces.Dict):
        return gym.spaces.Dict({key: to_gymnasium(child) for key, child in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return gym.spaces.Tuple([to_gymnasium(child) for child in space.spaces])
    if not isinstance(space, spaces.Leaf):
        raise SpaceError(f"the space {space} arrived; gymnasium has a counterpart of Float, Int, Bool, Dict and Tuple.")
    if isinstance(space, spaces.Int) and not space.shape and space.low == 0 and space.dtype in ("int32", "int64"):
        return gym.spaces.Discrete(space.categories, dtype=space.numpy_dtype.type)
    top = np.asarray(space.high).astype(object) - 1 if isinstance(space, spaces.Int) else space.high
    low, high = (np.broadcast_to(bound, space.shape).astype(space.numpy_dtype) for bound in (space.low, top))
    return gym.spaces.Box(low, high, space.shape, space.numpy_dtype.type)


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)
