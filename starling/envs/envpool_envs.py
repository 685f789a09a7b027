"""EnvPool's C++ environments (Atari, classic control, Box2D, MuJoCo …), stepped in its thread pool.

All rows together, or those that are ready first; what its answers mean is in ``envpool_tasks``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from starling.core.trees import Tree, map_leaves
from starling.envs.actions import ActionCodec
from starling.envs.envpool_tasks import EnvPoolTask
from starling.envs.held_rows import HeldRows
from starling.envs.protocol import AsyncEnvs, Envs, Step
from starling.envs.spaces import from_gymnasium

__all__ = ["AsyncEnvPoolEnvs", "EnvPoolEnvs"]

ALL = slice(None)


class AsyncEnvPoolEnvs(AsyncEnvs):
    """``count`` environments of an EnvPool task, of which the ``batch`` rows that are ready first are served."""

    def __init__(
        self, task: str, count: int, batch: int, seed: int, *, extras: Sequence[str] = (), **options: Any
    ) -> None:
        self._task = EnvPoolTask(task, count, seed, options, extras, batch)
        self.count, self.batch, self.name = count, batch, self._task.name
        self.observation_space = from_gymnasium(self._task.spaces[0])
        self._actions = ActionCodec(self._task.spaces[1], batch)
        self.action_space = self._actions.space
        if self._task.extras is not None:
            self.extras_space = self._task.extras.space
        self._held = HeldRows(self.name, count, batch)
        self._begun = False

    def reset(self) -> None:
        if self._begun:
            self._task.remake(self._task.state())  # rows that are under way cannot be called back
        self._begun = True
        self._held.release_all()
        self._task.begin()
        self._task.pool.async_reset()

    def recv(self) -> tuple[np.ndarray, Step]:
        self._held.require_enough()
        *answer, info = self._task.pool.recv()
        arrived = info["env_id"].astype(np.int64)
        self._held.take(arrived)
        order = np.argsort(arrived)
        arrays = {key: value for key, value in info.items() if isinstance(value, np.ndarray)}
        return arrived[order], self._task.read(map_leaves(lambda leaf: leaf[order], [*answer, arrays]), arrived[order])

    def send(self, rows: np.ndarray, action: Any) -> None:
        chosen = self._actions.batch(self._actions.accept(action))
        numbers = self._held.release(rows)
        self._task.pool.send(chosen, numbers.astype(np.int32))

    def state(self) -> dict[str, Any]:
        return self._task.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Begin new episodes, other ones than any before."""
        self._task.remake(state)
        self._begun = False
        self.reset()

    def close(self) -> None:
        self._task.pool.close()


class EnvPoolEnvs(Envs):
    """``count`` environments of an EnvPool task; ``options`` go to ``envpool.make``."""

    exact_resume = False
    asynchronous = AsyncEnvPoolEnvs

    def __init__(self, task: str, count: int, seed: int, *, extras: Sequence[str] = (), **options: Any) -> None:
        self._task = EnvPoolTask(task, count, seed, options, extras)
        self.count, self.name = count, self._task.name
        self.observation_space = from_gymnasium(self._task.spaces[0])
        self._actions = ActionCodec(self._task.spaces[1], count)
        self.action_space = self._actions.space
        if self._task.extras is not None:
            self.extras_space = self._task.extras.space

    def reset(self) -> Tree:
        self._task.begin()
        return self._task.first(self._task.pool.reset()[0])

    def step(self, action: Any) -> Step:
        return self._task.read(self._task.pool.step(self._actions.batch(self._actions.accept(action))), ALL)

    def state(self) -> dict[str, Any]:
        return self._task.state()

    def restore(self, state: dict[str, Any]) -> Tree:
        """Begin new episodes, other ones than any before."""
        self._task.remake(state)
        return self.reset()

    def close(self) -> None:
        self._task.pool.close()
