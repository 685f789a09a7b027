"""Actions on their way to environments, and the log that lets a running episode be replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from starling.core import trees
from starling.core.errors import SpaceError
from starling.core.spaces import Leaf, Space
from starling.core.trees import Tree
from starling.envs.spaces import from_gymnasium

__all__ = ["ActionCodec", "ActionLog"]


class ActionCodec:
    """Checks actions [B, …] of the Starling space and turns them into what the environment takes.

    What leaves here for a Box lies inside it, in its own dtype. Algorithms carry bounds and actions as float32, where
    both are rounded, so this is the one place that can promise it: it knows the true bounds, and clips last.
    """

    def __init__(self, space: gym.Space[Any], count: int) -> None:
        self.space = from_gymnasium(space)
        self._source = space
        self._count = count
        self._leaf = self.space if isinstance(self.space, Leaf) else None
        self._dtype = self._leaf.numpy_dtype if self._leaf is not None else None
        self._shape = (count, *self._leaf.shape) if self._leaf is not None else ()
        self._plain = isinstance(space, gym.spaces.Discrete) and int(space.start) == 0
        self._outward = _conversion(space, count)

    def accept(self, action: Any) -> Tree:
        """``action``, checked; environments never get it itself, so they cannot scribble on it."""
        if type(action) is np.ndarray and action.dtype is self._dtype and action.shape == self._shape:
            return action
        if self._leaf is None:
            return self._accept_tree(self.space, action)
        array = np.asarray(action)
        if array.shape != self._shape:
            raise SpaceError(f"actions of shape {list(array.shape)} arrived, {list(self._shape)} was expected")
        return _cast(array, self._leaf)

    def _accept_tree(self, space: Space, action: Any) -> Tree:
        try:
            leaves = trees.map_leaves(np.asarray, action)
            arrays = dict(trees.items(leaves))
            for path, leaf in space.items():
                expected = (self._count, *leaf.shape)
                if arrays[path].shape != expected:
                    shape = list(arrays[path].shape)
                    raise SpaceError(f"actions at {path!r} of shape {shape} arrived, {list(expected)} was expected")
                arrays[path] = _cast(arrays[path], leaf)
        except KeyError as error:
            raise SpaceError(f"actions without {error} arrived; the action space is {space}") from error
        return trees.map_with_path(lambda path, _: arrays[path], leaves)

    def batch(self, action: Tree) -> Any:
        """What a vectorised environment takes: ``action`` with gymnasium's types and offsets."""
        if self._plain:
            return action.astype(self._source.dtype)
        return self._outward(action)

    def rows(self, action: Tree) -> list[Any]:
        """What the single environments take, one element each."""
        if self._plain:
            return action.tolist()
        return _rows(self._source, self._outward(action), self._count)

    def replay_rows(self, actions: Tree) -> list[Any]:
        """Like ``rows`` for the actions [T, …] of one environment."""
        lengths = {len(leaf) for leaf in trees.leaves(actions)}
        return _rows(self._source, self._outward(actions), lengths.pop() if lengths else 0)


def _cast(array: np.ndarray, leaf: Leaf) -> np.ndarray:
    if leaf.numpy_dtype.kind != "f" and array.dtype.kind == "f":
        raise SpaceError(f"actions of dtype {array.dtype} arrived, {leaf.dtype} was expected: this action is discrete")
    with np.errstate(over="ignore"):  # what overflows float32 becomes infinite, and is clipped where there are bounds
        return array.astype(leaf.numpy_dtype)


def _conversion(space: gym.Space[Any], count: int) -> Callable[[Tree], Any]:
    """A function from actions to a copy of them with gymnasium's types, offsets and bounds."""
    if isinstance(space, gym.spaces.Dict):
        named = {key: _conversion(child, count) for key, child in space.spaces.items()}
        return lambda action: {key: convert(action[key]) for key, convert in named.items()}
    if isinstance(space, gym.spaces.Tuple):
        row = [_conversion(child, count) for child in space.spaces]
        return lambda action: tuple(convert(part) for convert, part in zip(row, action))
    dtype = np.dtype(space.dtype)
    if isinstance(space, (gym.spaces.Discrete, gym.spaces.MultiDiscrete)):
        start = np.asarray(space.start, dtype)
        return lambda action: action.astype(dtype) + start
    if isinstance(space, gym.spaces.Box):
        return _into_box(space, dtype, count)
    return lambda action: action.astype(dtype)


def _into_box(space: gym.spaces.Box, dtype: np.dtype[Any], count: int) -> Callable[[np.ndarray], np.ndarray]:
    low, high = space.low, space.high
    # Bounds that need no broadcasting cost a third, and this is the hot path of small environments.
    lows, highs = (np.repeat(bound[np.newaxis], count, axis=0) for bound in (low, high))

    def convert(action: np.ndarray) -> np.ndarray:
        # The wider of both types is compared: float64 bounds are met exactly, and float16 is rounded when inside.
        if len(action) == count:
            return np.minimum(np.maximum(action, lows), highs).astype(dtype, copy=False)
        return np.minimum(np.maximum(action, low), high).astype(dtype, copy=False)

    return convert


def _rows(space: gym.Space[Any], action: Any, count: int) -> list[Any]:
    if isinstance(space, gym.spaces.Dict):
        columns = {key: _rows(child, action[key], count) for key, child in space.spaces.items()}
        return [{key: column[i] for key, column in columns.items()} for i in range(count)]
    if isinstance(space, gym.spaces.Tuple):
        return list(zip(*(_rows(child, part, count) for child, part in zip(space.spaces, action))))
    if isinstance(space, gym.spaces.Discrete):
        return action.tolist()
    return list(action)


class ActionLog:
    """The batches of actions since the oldest running episode began.

    A batch is kept as its bytes: the cheapest copy there is, made once per step whatever B is. What no running episode
    needs is dropped now and then. Past ``limit`` steps the older half is forgotten: an episode that began in it can no
    longer be replayed.
    """

    def __init__(self, space: Space, count: int, limit: int = 100_000) -> None:
        self._space, self._count, self._limit = space, count, limit
        self._leaves = [leaf for _, leaf in space.items()]
        self._single = isinstance(space, Leaf)
        self.clear(0)

    def clear(self, step: int) -> None:
        """Forget everything; the next action is that of ``step``."""
        self._first = step
        self._rows: list[bytes] = []
        self._full = 1024  # rows at which to look for some to drop

    def append(self, action: Tree, oldest: int) -> None:
        """Keep one batch of actions; ``oldest`` is the step at which the oldest running episode began."""
        self._rows.append(action.tobytes() if self._single else _joined(trees.leaves(action)))
        if len(self._rows) >= self._full:
            self._make_room(oldest)

    def _make_room(self, oldest: int) -> None:
        drop = max(oldest - self._first, 0)
        if len(self._rows) - drop >= self._limit:
            drop = len(self._rows) // 2
        del self._rows[:drop]
        self._first += drop
        self._full = min(max(1024, 2 * len(self._rows)), self._limit)

    def since(self, step: int, env: int) -> Tree | None:
        """The actions [T, …] of one environment from ``step`` on, or None where they are forgotten."""
        if step < self._first:
            return None
        rows = self._rows[step - self._first :]
        table = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), self._count * self._space.nbytes)
        found, offset = [], 0
        for leaf in self._leaves:
            size = leaf.size * leaf.numpy_dtype.itemsize
            start = offset + env * size
            column = np.ascontiguousarray(table[:, start : start + size]).view(leaf.numpy_dtype)
            found.append(column.reshape(len(rows), *leaf.shape))
            offset += self._count * size
        it = iter(found)
        return trees.map_leaves(lambda _: next(it), self.nothing())

    def nothing(self) -> Tree:
        """The actions [0, …] of an episode that has only begun."""
        return self._space.ranked(batch=True).zeros((0,))

    def put_back(self, episodes: list[Tree], now: int) -> None:
        """Fill the log with the actions of the running episodes, all of which end at step ``now``."""
        columns = [trees.leaves(actions) for actions in episodes]
        longest = max(len(column[0]) for column in columns)
        batches = [np.zeros((longest, self._count, *leaf.shape), leaf.numpy_dtype) for leaf in self._leaves]
        for env, column in enumerate(columns):
            for batch, part in zip(batches, column, strict=True):
                batch[longest - len(part) :, env] = part
        self.clear(now - longest)
        self._rows = [_joined([batch[t] for batch in batches]) for t in range(longest)]


def _joined(arrays: list[np.ndarray]) -> bytes:
    return b"".join([array.tobytes() for array in arrays])
