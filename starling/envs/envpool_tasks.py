"""A task of EnvPool: how it is made, and what its results mean, whichever rows they come for.

EnvPool begins new episodes the NEXT_STEP way, so the row after an end is not valid. Resetting the ended rows by an
extra call would cost more than the wasted row (a round trip through the thread pool), and would be wrong with
``episodic_life``: there a life lost ends an episode, and only the step after it lets the same game go on.

Two things EnvPool reports in its own way are put right where it tells enough:

- It clears ``terminated`` where an episode ends by itself in the very step that reaches the time limit. Atari games say
  in ``info["terminated"]`` that they are over; for other environments such an end counts as a truncation.
- With ``episodic_life`` or ``reward_clip`` the rewards are not the game's score. Episodes are reported per whole game,
  with the score that ``info["reward"]`` carries.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from starling.core.errors import ConfigError, EnvError, MissingExtraError, UnknownNameError
from starling.core.random import stream
from starling.core.trees import Tree
from starling.envs.extras import ExtrasCodec, extras_codec
from starling.envs.failures import require_count
from starling.envs.naming import nearest
from starling.envs.observations import Unfit, all_finite, observation_codec
from starling.envs.protocol import Episode, Step

__all__ = ["EnvPoolTask"]

Rows = np.ndarray | slice


class EnvPoolTask:
    """``count`` environments of a task, of which ``batch`` (0: all) answer at a time; ``options`` go to EnvPool."""

    def __init__(
        self, task: str, count: int, seed: int, options: dict[str, Any], extras: Sequence[str] = (), batch: int = 0
    ) -> None:
        self.name, self.count, self.restores = f"envpool:{task}", count, 0
        self._task, self._seed, self._options = task, seed, options
        self._batch = batch or count
        self.pool = self._make()
        self._codec = observation_codec(self.spaces[0])
        self.extras = self._find_extras(extras)
        self._answers = 0  # for messages
        self._returns, self._lengths = np.zeros(count), np.zeros(count, np.int64)
        self._resets = np.ones(count, np.bool_)  # rows of which the coming answer is a reset observation

    def _make(self) -> Any:
        try:
            import envpool
        except ImportError:
            raise MissingExtraError("envpool", "atari") from None
        known = envpool.list_all_envs()
        if self._task not in known:
            raise UnknownNameError("environment", self.name, nearest(self.name, (f"envpool:{task}" for task in known)))
        seed = int(stream(self._seed, "env", "pool", self.restores).integers(2**30))
        fixed = {"env_type": "gymnasium", "num_envs": self.count, "seed": seed, "batch_size": self._batch}
        clash = sorted(fixed.keys() & self._options.keys())
        if clash:
            raise ConfigError(f"{self.name}: {', '.join(clash)} cannot be given; they follow from count and seed.")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about the precision of bounds, from inside the package
                pool = envpool.make(self._task, **fixed, **self._options)
                # The spaces are made when they are first read; the warnings are theirs.
                self.spaces = (pool.observation_space, pool.action_space)
                return pool
        except (AssertionError, RuntimeError, TypeError, ValueError) as error:
            raise ConfigError(f"{self.name} cannot be made with {self._options}: {error}") from error

    def _find_extras(self, names: Sequence[str]) -> ExtrasCodec | None:
        """EnvPool declares its infos; a leading -1 stands for the players, of which there is one."""
        if not names:
            return None
        blank = {
            path.removeprefix("info:"): np.zeros([size for size in spec.shape if size != -1], spec.dtype)
            for path, spec in self.pool.spec.state_array_spec.items()
            if path == "elapsed_step" or (path.startswith("info:") and "." not in path)
        }
        try:
            return extras_codec(names, blank)
        except Unfit as error:
            raise EnvError(f"{self.name}: {error}.") from error

    def begin(self) -> None:
        """Count from the beginning: every row is about to be reset."""
        self._returns[:], self._lengths[:], self._resets[:] = 0.0, 0, True

    def first(self, obs: Any) -> Tree:
        """The reset observations of all rows."""
        self._resets[:] = False
        return self._encode(obs)

    def read(self, result: Any, rows: Rows) -> Step:
        """What the answer of ``rows`` means."""
        raw, reward, terminated, truncated, info = result
        self._answers += 1
        obs = self._encode(raw)
        if not all_finite(reward):
            raise EnvError(f"{self._place()}: a reward is not finite: {reward.tolist()}.")
        over = terminated | truncated
        if "terminated" in info:
            terminated = terminated | (info["terminated"] != 0)
            over = (info["terminated"] != 0) | truncated
        valid = ~self._resets[rows]
        ended = (terminated | truncated) & valid
        self._resets[rows] = ended
        episodes = self._count(rows, np.where(valid, info.get("reward", reward), 0.0), valid, over & valid)
        extras = {} if self.extras is None else self._take_extras(self.extras, info)
        return Step(obs, reward, terminated, truncated, obs if ended.any() else None, valid, episodes, extras)

    def _count(self, rows: Rows, score: np.ndarray, valid: np.ndarray, over: np.ndarray) -> list[Episode]:
        self._returns[rows] += score
        self._lengths[rows] += valid
        if not over.any():
            return []
        numbers = np.arange(self.count)[rows][over]
        finished = [Episode(i, float(self._returns[i]), int(self._lengths[i])) for i in numbers.tolist()]
        self._returns[numbers], self._lengths[numbers] = 0.0, 0
        return finished

    def _take_extras(self, codec: ExtrasCodec, info: dict[str, Any]) -> dict[str, Tree]:
        return {key: self._fitted(functools.partial(codec.fit, key), info[key]) for key in codec.leaves}

    def _encode(self, obs: Any) -> Tree:
        return self._fitted(self._codec.batch, obs)

    def _fitted(self, encode: Any, value: Any) -> Any:
        try:
            return encode(value)
        except Unfit as error:
            raise EnvError(f"{self._place()}: what arrived does not fit its space: {error}.") from error

    def _place(self) -> str:
        return f"{self.name}, {self.count} environments, answer {self._answers} under seed {self._seed}"

    def state(self) -> dict[str, Any]:
        return {"name": self.name, "count": self.count, "restores": self.restores}

    def remake(self, state: dict[str, Any]) -> None:
        """Make the pool anew, with other seeds than any before: EnvPool's are fixed when it is made."""
        require_count(self.name, int(state["count"]), self.count)
        self.restores = int(state["restores"]) + 1
        self.pool.close()
        self.pool = self._make()
        self.begin()
