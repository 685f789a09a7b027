"""Actions on their way to environments, and the log that lets a running episode be replayed."""

from __future__ import annotations

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
    """Checks actions [B, …] of the Starling space and turns them into what the environment takes."""

    def __init__(self, space: gym.Space[Any], count: int) -> None:
        self.space = from_gymnasium(space)
        self._source = space
        self._count = count
        self._leaf = self.space if isinstance(self.space, Leaf) else None
        self._dtype = self._leaf.numpy_dtype if self._leaf is not None else None
        self._shape = (count, *self._leaf.shape) if self._leaf is not None else ()
        self._plain = isinstance(space, gym.spaces.Discrete) and int(space.start) == 0

    def accept(self, action: Any) -> Tree:
        """``action``, checked, and copied where environments could scribble on it."""
        if self._leaf is None:
            return self._accept_tree(self.space, action)
        array = np.asarray(action) if self._plain else np.array(action)
        if array.shape != self._shape:
            raise SpaceError(f"actions of shape {list(array.shape)} arrived, {list(self._shape)} was expected")
        if array.dtype != self._dtype and not (self._plain and array.dtype.kind in "iu"):
            array = _cast(array, self._leaf)
        return array

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
        return _outward(self._source, action)

    def rows(self, action: Tree) -> list[Any]:
        """What the single environments take, one element each."""
        if self._plain:
            return action.tolist()
        return _rows(self._source, _outward(self._source, action), self._count)

    def replay_rows(self, actions: Tree) -> list[Any]:
        """Like ``rows`` for the actions [T, …] of one environment."""
        lengths = {len(leaf) for leaf in trees.leaves(actions)}
        return _rows(self._source, _outward(self._source, actions), lengths.pop() if lengths else 0)


def _cast(array: np.ndarray, leaf: Leaf) -> np.ndarray:
    if leaf.numpy_dtype.kind != "f" and array.dtype.kind == "f":
        raise SpaceError(f"actions of dtype {array.dtype} arrived, {leaf.dtype} was expected: this action is discrete")
    return array.astype(leaf.numpy_dtype)


def _outward(space: gym.Space[Any], action: Tree) -> Any:
    if isinstance(space, gym.spaces.Dict):
        return {key: _outward(child, action[key]) for key, child in space.spaces.items()}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(_outward(child, part) for child, part in zip(space.spaces, action))
    if isinstance(space, (gym.spaces.Discrete, gym.spaces.MultiDiscrete)):
        return action.astype(space.dtype) + np.asarray(space.start, space.dtype)
    return action.astype(space.dtype)


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

    One row is written per step, whatever B is; the log is shifted when it is full, and doubled when shifting frees
    too little. Past ``limit`` steps the older half is forgotten: an episode that began in it can no longer be replayed.
    """

    def __init__(self, space: Space, count: int, limit: int = 100_000) -> None:
        self._space, self._count, self._limit = space, count, limit
        self._single = isinstance(space, Leaf)
        self.clear(0)

    def clear(self, step: int, capacity: int = 1024) -> None:
        """Forget everything; the next action is that of ``step``."""
        self._first, self._size, self._capacity = step, 0, capacity
        ranked = self._space.ranked(batch=True, time=True)
        self._leaves = [np.zeros((capacity, self._count, *s.shape), s.numpy_dtype) for _, s in ranked.items()]

    def append(self, action: Tree, oldest: int) -> None:
        """Write one batch of actions; ``oldest`` is the step at which the oldest running episode began."""
        if self._size == self._capacity:
            self._make_room(oldest)
        if self._single:
            self._leaves[0][self._size] = action
        else:
            for rows, leaf in zip(self._leaves, trees.leaves(action)):
                rows[self._size] = leaf
        self._size += 1

    def _make_room(self, oldest: int) -> None:
        drop = max(oldest - self._first, 0)
        if self._size - drop > self._capacity // 2:
            if self._capacity >= self._limit:
                drop = max(drop, self._size // 2)
            else:
                self._capacity *= 2
        kept = self._size - drop
        for i, rows in enumerate(self._leaves):
            grown = np.zeros((self._capacity, *rows.shape[1:]), rows.dtype)
            grown[:kept] = rows[drop : self._size]
            self._leaves[i] = grown
        self._first, self._size = self._first + drop, kept

    def since(self, step: int, env: int) -> Tree | None:
        """The actions [T, …] of one environment from ``step`` on, or None where they are forgotten."""
        if step < self._first:
            return None
        part = slice(step - self._first, self._size)
        return self._tree([rows[part, env].copy() for rows in self._leaves])

    def nothing(self) -> Tree:
        """The actions [0, …] of an episode that has only begun."""
        return self._space.ranked(batch=True).zeros((0,))

    def put_back(self, episodes: list[Tree], now: int) -> None:
        """Fill the log with the actions of the running episodes, all of which end at step ``now``."""
        columns = [trees.leaves(actions) for actions in episodes]
        longest = max(len(column[0]) for column in columns)
        self.clear(now - longest, max(1024, 2 * longest))
        for env, column in enumerate(columns):
            for rows, leaf in zip(self._leaves, column):
                rows[longest - len(leaf) : longest, env] = leaf
        self._size = longest

    def _tree(self, leaves: list[np.ndarray]) -> Tree:
        it = iter(leaves)
        return trees.map_leaves(lambda _: next(it), self.nothing())
