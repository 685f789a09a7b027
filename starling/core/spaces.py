"""Spaces: shape, dtype, bounds and ranks of one tensor, or of a tree of them.

    Float((4,))                          a vector of floats
    Int((), high=2)                      one of two actions
    Int((84, 84, 4), 0, 256, "uint8")    an image
    Dict(position=Float((3,)), on=Bool())

A space may carry a *time* and a *batch* rank: leading dimensions, in that order, whose sizes are known only
when data arrives. ``space.ranked(batch=True)`` adds one. ``zeros`` and ``sample`` take the sizes.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from starling.core.errors import SpaceError

__all__ = ["Bool", "Bound", "Dict", "Float", "Int", "Leaf", "Space", "Tuple", "space_of"]

Bound = float | np.ndarray
Sizes = tuple[int, ...]


class Space(ABC):
    """What a value may look like."""

    @abstractmethod
    def items(self, path: str = "") -> Iterator[tuple[str, Leaf]]:
        """Yield (path, leaf space) for each tensor of the space."""

    @abstractmethod
    def ranked(self, *, batch: bool = False, time: bool = False) -> Space:
        """The same space with exactly these leading ranks."""

    @abstractmethod
    def zeros(self, sizes: Sizes = ()) -> Any:
        """A value of zeros (moved inside the bounds) with ``sizes`` for the leading ranks."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, sizes: Sizes = ()) -> Any:
        """A random value; unbounded floats are drawn from a normal."""

    @abstractmethod
    def mismatch(self, value: Any, path: str = "") -> str | None:
        """Why ``value`` is not in the space, or None where it is."""

    def contains(self, value: Any) -> bool:
        return self.mismatch(value) is None

    def check(self, value: Any, what: str) -> None:
        """Raise SpaceError naming ``what`` unless ``value`` is in the space."""
        reason = self.mismatch(value)
        if reason is not None:
            raise SpaceError(f"{what} does not fit its space {self}: {reason}")

    @abstractmethod
    def zeros_with(self, sizes: Mapping[str, int]) -> Any:
        """``zeros`` with the sizes of the ranks by name: ``{"time": 5, "batch": 2}``."""

    def flatten(self) -> dict[str, Leaf]:
        """The leaf spaces by path."""
        return dict(self.items())

    @property
    def nbytes(self) -> int:
        """Bytes of one value without its leading ranks."""
        return sum(leaf.size * leaf.numpy_dtype.itemsize for _, leaf in self.items())


@dataclass(frozen=True, eq=False)
class Leaf(Space):
    """One tensor."""

    shape: tuple[int, ...] = ()
    low: Bound = -np.inf
    high: Bound = np.inf
    dtype: str = "float32"
    batch: bool = False
    time: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(n) for n in self.shape))
        if any(n < 0 for n in self.shape):
            raise SpaceError(f"shape={self.shape}; every dimension must be at least 0.")
        for name in ("low", "high"):
            bound = np.asarray(getattr(self, name))
            if bound.ndim and bound.shape != self.shape:
                raise SpaceError(f"{name} has shape {bound.shape}; it must be a number or have the shape {self.shape}.")
            uniform = bound.size > 0 and bool((bound == bound.flat[0]).all())
            object.__setattr__(self, name, bound.flat[0].item() if uniform else bound)
        if np.any(np.asarray(self.low) > np.asarray(self.high)):
            raise SpaceError(f"low={self.low} is above high={self.high}.")

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        return np.dtype(self.dtype)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def ranks(self) -> int:
        return int(self.batch) + int(self.time)

    @property
    def bounded(self) -> bool:
        return bool(np.isfinite(self.low).all() and np.isfinite(self.high).all())

    def _key(self) -> tuple[Any, ...]:
        bounds = (np.asarray(self.low).tobytes(), np.asarray(self.high).tobytes())
        return (type(self), self.shape, self.dtype, self.batch, self.time, *bounds)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Leaf) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def items(self, path: str = "") -> Iterator[tuple[str, Leaf]]:
        yield path, self

    def ranked(self, *, batch: bool = False, time: bool = False) -> Leaf:
        return dataclasses.replace(self, batch=batch, time=time)

    def _full_shape(self, sizes: Sizes) -> Sizes:
        if len(sizes) != self.ranks:
            raise SpaceError(f"{self} has {self.ranks} leading ranks; {len(sizes)} sizes were given.")
        return (*sizes, *self.shape)

    def zeros(self, sizes: Sizes = ()) -> np.ndarray:
        inside = np.clip(np.zeros(self.shape), self.low, self._inclusive_high)
        if not inside.any():
            return np.zeros(self._full_shape(sizes), self.numpy_dtype)  # takes no memory before it is written to
        return np.broadcast_to(inside, self._full_shape(sizes)).astype(self.numpy_dtype)

    def zeros_with(self, sizes: Mapping[str, int]) -> np.ndarray:
        ranks = [name for name, there in (("time", self.time), ("batch", self.batch)) if there]
        return self.zeros(tuple(sizes[name] for name in ranks))

    @property
    def _inclusive_high(self) -> Bound:
        return self.high

    def mismatch(self, value: Any, path: str = "") -> str | None:
        here = f"at {path!r}: " if path else ""
        array = np.asarray(value)
        if array.dtype != self.numpy_dtype:
            return f"{here}dtype {array.dtype} arrived, {self.dtype} was expected"
        if array.ndim != len(self.shape) + self.ranks or array.shape[self.ranks :] != self.shape:
            lead = "T, " * self.time + "B, " * self.batch
            expected = f"[{lead}{', '.join(map(str, self.shape))}]"
            return f"{here}shape {list(array.shape)} arrived, {expected} was expected"
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            return f"{here}not every number is finite ({int((~np.isfinite(array)).sum())} of {array.size} are not)"
        low, high = np.asarray(self.low), np.asarray(self._inclusive_high)
        if np.issubdtype(array.dtype, np.floating):  # values are rounded to the dtype, so the bounds are too
            low, high = low.astype(array.dtype), high.astype(array.dtype)
        if array.size and (np.any(array < low) or np.any(array > high)):
            low, high = np.min(low), np.max(high)
            return f"{here}values {array.min():g} … {array.max():g} arrived, {low:g} … {high:g} was expected"
        return None

    def __str__(self) -> str:
        sizes = ["T"] * self.time + ["B"] * self.batch + ["×".join(map(str, self.shape))] * bool(self.shape)
        return f"{self.dtype}[{'·'.join(sizes)}]" if sizes else str(self.dtype)


@dataclass(frozen=True, eq=False)
class Float(Leaf):
    """Floating-point numbers between ``low`` and ``high``, both included."""

    def sample(self, rng: np.random.Generator, sizes: Sizes = ()) -> np.ndarray:
        shape = self._full_shape(sizes)
        if not self.bounded:
            return np.clip(rng.standard_normal(shape), self.low, self.high).astype(self.numpy_dtype)
        return rng.uniform(self.low, self.high, shape).astype(self.numpy_dtype)


@dataclass(frozen=True, eq=False)
class Int(Leaf):
    """Whole numbers from ``low`` up to, but not including, ``high``."""

    low: Bound = 0
    high: Bound = 2**31 - 1
    dtype: str = "int32"

    @property
    def _inclusive_high(self) -> Bound:
        return self.high - 1

    @property
    def categories(self) -> int:
        """How many values there are, the largest count where the elements differ."""
        return int(np.max(np.asarray(self.high) - np.asarray(self.low)))

    def sample(self, rng: np.random.Generator, sizes: Sizes = ()) -> np.ndarray:
        low, high = np.asarray(self.low, np.int64), np.asarray(self.high, np.int64)
        return rng.integers(low, high, self._full_shape(sizes)).astype(self.numpy_dtype)


@dataclass(frozen=True, eq=False)
class Bool(Leaf):
    """Truth values."""

    low: Bound = 0
    high: Bound = 1
    dtype: str = "bool"

    def sample(self, rng: np.random.Generator, sizes: Sizes = ()) -> np.ndarray:
        return rng.random(self._full_shape(sizes)) < 0.5


@dataclass(frozen=True, init=False)
class Dict(Space):
    """Named spaces."""

    spaces: Mapping[str, Space]

    def __init__(self, spaces: Mapping[str, Space] | None = None, **named: Space) -> None:
        merged = {**(spaces or {}), **named}
        object.__setattr__(self, "spaces", {key: merged[key] for key in sorted(merged)})

    def __getitem__(self, key: str) -> Space:
        return self.spaces[key]

    def __hash__(self) -> int:
        return hash(tuple(self.spaces.items()))

    def items(self, path: str = "") -> Iterator[tuple[str, Leaf]]:
        for key, space in self.spaces.items():
            yield from space.items(f"{path}.{key}" if path else key)

    def ranked(self, *, batch: bool = False, time: bool = False) -> Dict:
        return Dict({key: space.ranked(batch=batch, time=time) for key, space in self.spaces.items()})

    def zeros(self, sizes: Sizes = ()) -> dict[str, Any]:
        return {key: space.zeros(sizes) for key, space in self.spaces.items()}

    def zeros_with(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        return {key: space.zeros_with(sizes) for key, space in self.spaces.items()}

    def sample(self, rng: np.random.Generator, sizes: Sizes = ()) -> dict[str, Any]:
        return {key: space.sample(rng, sizes) for key, space in self.spaces.items()}

    def mismatch(self, value: Any, path: str = "") -> str | None:
        if not isinstance(value, Mapping):
            return f"{f'at {path!r}: ' if path else ''}{type(value).__name__} arrived, a dict was expected"
        if set(value) != set(self.spaces):
            return f"{f'at {path!r}: ' if path else ''}keys {sorted(value)} arrived, {list(self.spaces)} was expected"
        found = (s.mismatch(value[k], f"{path}.{k}" if path else k) for k, s in self.spaces.items())
        return next((reason for reason in found if reason), None)

    def __str__(self) -> str:
        return "{" + ", ".join(f"{key}: {space}" for key, space in self.spaces.items()) + "}"


@dataclass(frozen=True, init=False)
class Tuple(Space):
    """Spaces in a row."""

    spaces: tuple[Space, ...]

    def __init__(self, *spaces: Space) -> None:
        object.__setattr__(self, "spaces", tuple(spaces))

    def __getitem__(self, index: int) -> Space:
        return self.spaces[index]

    def items(self, path: str = "") -> Iterator[tuple[str, Leaf]]:
        for i, space in enumerate(self.spaces):
            yield from space.items(f"{path}.{i}" if path else str(i))

    def ranked(self, *, batch: bool = False, time: bool = False) -> Tuple:
        return Tuple(*(space.ranked(batch=batch, time=time) for space in self.spaces))

    def zeros(self, sizes: Sizes = ()) -> tuple[Any, ...]:
        return tuple(space.zeros(sizes) for space in self.spaces)

    def zeros_with(self, sizes: Mapping[str, int]) -> tuple[Any, ...]:
        return tuple(space.zeros_with(sizes) for space in self.spaces)

    def sample(self, rng: np.random.Generator, sizes: Sizes = ()) -> tuple[Any, ...]:
        return tuple(space.sample(rng, sizes) for space in self.spaces)

    def mismatch(self, value: Any, path: str = "") -> str | None:
        if not isinstance(value, (tuple, list)) or len(value) != len(self.spaces):
            return f"{f'at {path!r}: ' if path else ''}{value!r:.60} arrived, {len(self.spaces)} values were expected"
        found = (s.mismatch(v, f"{path}.{i}" if path else str(i)) for i, (s, v) in enumerate(zip(self.spaces, value)))
        return next((reason for reason in found if reason), None)

    def __str__(self) -> str:
        return "(" + ", ".join(map(str, self.spaces)) + ")"


def space_of(value: Any) -> Space:
    """The unranked, unbounded space of a value: a tree of arrays."""
    if isinstance(value, Mapping):
        return Dict({key: space_of(child) for key, child in value.items()})
    if isinstance(value, (tuple, list)):
        return Tuple(*(space_of(child) for child in value))
    array = np.asarray(value)
    if array.dtype == np.bool_:
        return Bool(array.shape)
    if np.issubdtype(array.dtype, np.integer):
        bounds = np.iinfo(array.dtype)
        return Int(array.shape, bounds.min, bounds.max + 1, array.dtype.name)
    return Float(array.shape, dtype=array.dtype.name)
