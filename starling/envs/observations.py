"""Observation codecs: from what environments return to validated batches.

A codec takes a list of B observations (``stack``) or one batched observation (``batch``) and returns a fresh tree of
arrays [B, …] in the Starling space, or raises Unfit with the reason. Validation costs one look at the stacked
array: its shape and type come from the stacking, and one pass tells whether every number is finite.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from starling.core.spaces import Int, Space
from starling.core.trees import Tree
from starling.envs.spaces import ACTION_MASK

__all__ = ["UNREADABLE", "BoolCodec", "Codec", "MaskedCodec", "Unfit", "all_finite", "mask_codec", "observation_codec"]

# What codecs and NumPy raise of values that cannot be read; PyTorch's tensors with gradients raise the last.
UNREADABLE = (OverflowError, TypeError, ValueError, RuntimeError)


class Unfit(ValueError):
    """A value that its space forbids; the message says why."""


def all_finite(array: np.ndarray) -> bool:
    """Whether no element is NaN or infinite.

    Searching the truth values as bytes costs less than half of ``.all()`` on the small arrays of the hot path.
    """
    return np.isfinite(array).tobytes().find(0) < 0


class Codec(ABC):
    """Turns observations of one space into batches."""

    @abstractmethod
    def stack(self, values: Sequence[Any]) -> Tree:
        """The batch of ``values``, one per environment."""

    @abstractmethod
    def batch(self, value: Any) -> Tree:
        """The batch of a value that already has a leading dimension."""


class BoxCodec(Codec):
    """Numbers of a fixed shape."""

    def __init__(self, space: gym.spaces.Box) -> None:
        self._arrives = np.dtype(space.dtype)
        self._narrowed = self._arrives.kind == "f" and self._arrives != np.float32
        self._shape = space.shape
        self._floating = self._arrives.kind == "f"

    def stack(self, values: Sequence[Any]) -> np.ndarray:
        array = np.array(values, order="C")
        if array.dtype is not self._arrives:
            array = self._cast(array)
        if array.shape[1:] != self._shape:
            raise Unfit(_shape_reason(array.shape[1:], self._shape))
        if self._floating:
            if self._narrowed:
                with np.errstate(over="ignore"):  # what overflows float32 is reported as not finite
                    array = array.astype(np.float32)
            if not all_finite(array):
                raise Unfit(_finite_reason(array))
        return array

    def batch(self, value: Any) -> np.ndarray:
        return self.stack(value)

    def _cast(self, array: np.ndarray) -> np.ndarray:
        if not np.can_cast(array.dtype, self._arrives, "safe"):
            remedy = f"return it as {self._arrives}"
            if array.dtype.kind in "biuf":
                remedy += f", or declare the space as {array.dtype}"
            raise Unfit(f"dtype {array.dtype} arrived, {self._arrives} was expected; {remedy}")
        return array.astype(self._arrives)


class DiscreteCodec(Codec):
    """Whole numbers in a range; carried from 0."""

    def __init__(self, space: gym.spaces.Discrete[Any] | gym.spaces.MultiDiscrete[Any]) -> None:
        self._shape: tuple[int, ...] = space.shape or ()
        self._start = np.asarray(space.start, np.int64)
        self._count = np.asarray(space.n if isinstance(space, gym.spaces.Discrete) else space.nvec, np.int64)

    def stack(self, values: Sequence[Any]) -> np.ndarray:
        array = np.array(values)
        if array.dtype.kind not in "iu":
            raise Unfit(f"dtype {array.dtype} arrived, an integer was expected")
        if array.shape[1:] != self._shape:
            raise Unfit(_shape_reason(array.shape[1:], self._shape))
        array = array - self._start
        if (array < 0).any() or (array >= self._count).any():
            last = self._start + self._count - 1
            raise Unfit(f"{values!r:.80} arrived, {self._start.tolist()} … {last.tolist()} was expected")
        return array.astype(np.int32)

    def batch(self, value: Any) -> np.ndarray:
        return self.stack(value)


class BoolCodec(Codec):
    """Truth values, however the environment spells them."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def stack(self, values: Sequence[Any]) -> np.ndarray:
        array = np.array(values)
        if array.dtype.kind not in "biu":
            raise Unfit(f"dtype {array.dtype} arrived, bool or an integer was expected")
        if array.shape[1:] != self.shape:
            raise Unfit(_shape_reason(array.shape[1:], self.shape))
        return array.astype(np.bool_)

    def batch(self, value: Any) -> np.ndarray:
        return self.stack(value)


class DictCodec(Codec):
    """Named observations."""

    def __init__(self, codecs: Mapping[str, Codec]) -> None:
        self._codecs = {key: codecs[key] for key in sorted(codecs)}

    def stack(self, values: Sequence[Any]) -> dict[str, Tree]:
        return {key: _at(key, codec.stack, [_entry(v, key) for v in values]) for key, codec in self._codecs.items()}

    def batch(self, value: Any) -> dict[str, Tree]:
        return {key: _at(key, codec.batch, _entry(value, key)) for key, codec in self._codecs.items()}


class TupleCodec(Codec):
    """Observations in a row."""

    def __init__(self, codecs: Sequence[Codec]) -> None:
        self._codecs = tuple(codecs)

    def stack(self, values: Sequence[Any]) -> tuple[Tree, ...]:
        return tuple(_at(i, c.stack, [self._part(v, i) for v in values]) for i, c in enumerate(self._codecs))

    def batch(self, value: Any) -> tuple[Tree, ...]:
        return tuple(_at(i, c.batch, self._part(value, i)) for i, c in enumerate(self._codecs))

    def _part(self, value: Any, index: int) -> Any:
        if not isinstance(value, (tuple, list)) or len(value) != len(self._codecs):
            raise Unfit(f"{value!r:.60} arrived, a tuple of {len(self._codecs)} was expected")
        return value[index]


class MaskedCodec(Codec):
    """Pairs of an observation and the info that carries its action mask."""

    def __init__(self, observation: Codec, mask: BoolCodec) -> None:
        self._observation, self.mask = observation, mask

    def stack(self, values: Sequence[Any]) -> dict[str, Tree]:
        masks = [_entry(info, ACTION_MASK) for _, info in values]
        observations = [observation for observation, _ in values]
        return {
            ACTION_MASK: _at(ACTION_MASK, self.mask.stack, masks),
            "observation": self._observation.stack(observations),
        }

    def batch(self, value: Any) -> dict[str, Tree]:
        observation, infos = value
        return {
            ACTION_MASK: _at(ACTION_MASK, self.mask.batch, _entry(infos, ACTION_MASK)),
            "observation": self._observation.batch(observation),
        }


def mask_codec(action_space: Space) -> BoolCodec:
    """The codec of the masks of a discrete action space."""
    if not isinstance(action_space, Int) or action_space.shape:
        raise Unfit(f"an action mask arrived, but the action space is {action_space}; it must be Discrete")
    return BoolCodec((action_space.categories,))


def observation_codec(space: gym.Space[Any]) -> Codec:
    """The codec of ``space``, which must be one that ``from_gymnasium`` takes."""
    if isinstance(space, gym.spaces.Box):
        return BoolCodec(space.shape) if np.dtype(space.dtype).kind == "b" else BoxCodec(space)
    if isinstance(space, (gym.spaces.Discrete, gym.spaces.MultiDiscrete)):
        return DiscreteCodec(space)
    if isinstance(space, gym.spaces.MultiBinary):
        return BoolCodec(space.shape)
    if isinstance(space, gym.spaces.Dict):
        codecs = {key: observation_codec(child) for key, child in space.spaces.items()}
        if ACTION_MASK in codecs:
            codecs[ACTION_MASK] = BoolCodec(space.spaces[ACTION_MASK].shape or ())
        return DictCodec(codecs)
    assert isinstance(space, gym.spaces.Tuple)
    return TupleCodec([observation_codec(child) for child in space.spaces])


def _entry(value: Any, key: str) -> Any:
    if not isinstance(value, Mapping):
        raise Unfit(f"{type(value).__name__} arrived, a dict was expected")
    if key not in value:
        raise Unfit(f"keys {sorted(map(str, value))} arrived, {key!r} is missing")
    return value[key]


def _at(key: str | int, encode: Any, value: Any) -> Tree:
    try:
        return encode(value)
    except UNREADABLE as error:
        raise Unfit(f"at {key!r}: {error}") from error


def _shape_reason(arrived: tuple[int, ...], expected: tuple[int, ...]) -> str:
    return f"shape {list(arrived)} arrived, {list(expected)} was expected"


def _finite_reason(array: np.ndarray) -> str:
    bad = ~np.isfinite(array)
    return f"{int(bad.sum())} of {array.size} numbers are not finite ({array[bad][0]}), finite ones were expected"
