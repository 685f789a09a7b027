"""Columns of steps: arrays [T, B] that environments fill, each at a pace of its own.

What has no time lies beside them: ``next_obs`` [B], the observations after the last step, and ``memory`` [B], what
acting carried before the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from starling.core.spaces import Bool, Dict, Float, Space
from starling.core.trees import Tree, leaves, map_leaves

__all__ = ["TIMELESS", "StepColumns", "column_signature", "put_steps", "side_by_side"]

TIMELESS = ("next_obs", "memory")


def column_signature(obs: Space, action: Space, **extras: Space) -> Dict:
    """[T, B]: obs, action, reward, terminated, truncated, mask, which is 0 where a row is no step, and the extras."""
    numbers, flags = dict.fromkeys(("reward", "mask"), Float()), dict.fromkeys(("terminated", "truncated"), Bool())
    return Dict({"obs": obs, "action": action, **numbers, **flags, **extras}).ranked(time=True, batch=True)


def put_steps(
    columns: Mapping[str, Tree], times: np.ndarray, which: np.ndarray, step: Mapping[str, Tree], envs: np.ndarray
) -> None:
    """Write a step [B, …] of these environments into the columns ``which``, each at its own time."""
    for name, part in columns.items():
        if name not in TIMELESS:
            for room, leaf in zip(leaves(part), leaves(step[name]), strict=True):
                room[times, which] = leaf[envs]


class StepColumns:
    """Gathers columns of T steps: each environment fills columns of its own, and waits for no other.

        columns = StepColumns(space, length=20, num_envs=8)
        columns.add({"obs": obs, ..., "next_obs": next_obs, "version": version}, valid)
        chunk, version = columns.take(8)                # when len(columns) >= 8

    A fast environment may give several columns of a chunk. That of a slow one comes in a later one.
    """

    def __init__(self, space: Dict, length: int, num_envs: int) -> None:
        self._length = length
        room = 3 * num_envs  # columns being filled, those that wait in a chunk not full yet, those that fill it at once
        self._data = space.zeros_with({"time": length, "batch": room})
        self._column, self._t = np.arange(num_envs), np.zeros(num_envs, np.int64)  # of each environment
        self._full: list[int] = []
        self._free = [*range(num_envs, room)]
        self._versions = np.zeros(room, np.int64)  # of the weights that began each column

    def __len__(self) -> int:
        """Columns that are full."""
        return len(self._full)

    def add(self, step: Mapping[str, Tree], valid: np.ndarray) -> None:
        """Take a step [B, …] of the environments that made one."""
        envs = np.flatnonzero(valid)
        times, columns = self._t[envs], self._column[envs]
        put_steps(self._data, times, columns, step, envs)
        begun, over = times == 0, times == self._length - 1
        self._put("memory", columns[begun], step, envs[begun])
        self._put("next_obs", columns[over], step, envs[over])
        self._versions[columns[begun]] = step["version"][envs[begun]]
        self._t[envs] = np.where(over, 0, times + 1)
        self._full += columns[over].tolist()
        self._column[envs[over]] = [self._free.pop() for _ in envs[over]]

    def _put(self, name: str, columns: np.ndarray, step: Mapping[str, Tree], envs: np.ndarray) -> None:
        if name in self._data:
            for room, leaf in zip(leaves(self._data[name]), leaves(step[name]), strict=True):
                room[columns] = leaf[envs]

    def take(self, count: int) -> tuple[dict[str, Tree], int]:
        """Copies of the columns that were full first, and the version of the oldest weights that began one."""
        taken, self._full = self._full[:count], self._full[count:]
        self._free += taken
        return _over_leaves(lambda axis, leaf: leaf.take(taken, axis), self._data), int(self._versions[taken].min())


def side_by_side(parts: list[dict[str, Tree]]) -> dict[str, Tree]:
    """The columns of all parts; without a copy where there is one part."""
    if len(parts) == 1:
        return parts[0]
    return _over_leaves(lambda axis, *leaves: np.concatenate(leaves, axis), *parts)


def _over_leaves(function: Callable[..., np.ndarray], *parts: dict[str, Tree]) -> dict[str, Tree]:
    """``function(axis of the columns, *leaves)`` of all leaves."""
    axes = {name: 0 if name in TIMELESS else 1 for name in parts[0]}
    return {name: map_leaves(partial(function, axis), *(part[name] for part in parts)) for name, axis in axes.items()}
