"""EnvPoolEnvs: EnvPool's C++ environments (Atari, classic control, Box2D, MuJoCo …), stepped in its thread pool.

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

import warnings
from typing import Any

import numpy as np

from starling.core.errors import ConfigError, EnvError, MissingExtraError, UnknownNameError
from starling.core.random import stream
from starling.core.trees import Tree
from starling.envs.actions import ActionCodec
from starling.envs.naming import nearest
from starling.envs.observations import Unfit, all_finite, observation_codec
from starling.envs.protocol import Envs, Episode, Step
from starling.envs.spaces import from_gymnasium

__all__ = ["EnvPoolEnvs"]


class EnvPoolEnvs(Envs):
    """``count`` environments of an EnvPool task; ``options`` go to ``envpool.make``."""

    def __init__(self, task: str, count: int, seed: int, **options: Any) -> None:
        self.count, self.name = count, f"envpool:{task}"
        self.exact_resume = False
        self._task, self._seed, self._restores, self._options = task, seed, 0, options
        self._pool = self._make()
        observation, action = self.source_spaces
        self.observation_space = from_gymnasium(observation)
        self._codec = observation_codec(observation)
        self._actions = ActionCodec(action, count)
        self.action_space = self._actions.space
        self._now = 0  # steps taken, for messages
        self._ended = np.zeros(count, np.bool_)  # rows that are reset in the coming step
        self._returns = np.zeros(count)
        self._lengths = np.zeros(count, np.int64)

    def _make(self) -> Any:
        try:
            import envpool
        except ImportError:
            raise MissingExtraError("envpool", "atari") from None
        known = envpool.list_all_envs()
        if self._task not in known:
            raise UnknownNameError("environment", self.name, nearest(self.name, (f"envpool:{task}" for task in known)))
        seed = int(stream(self._seed, "env", "pool", self._restores).integers(2**30))
        fixed = {"env_type": "gymnasium", "num_envs": self.count, "seed": seed}
        clash = sorted({*fixed, "batch_size"} & self._options.keys())
        if clash:
            raise ConfigError(f"{self.name}: {', '.join(clash)} cannot be given; they follow from count and seed.")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about the precision of bounds, from inside the package
                pool = envpool.make(self._task, **fixed, **self._options)
                # The spaces are made when they are first read; the warnings are theirs.
                self.source_spaces = (pool.observation_space, pool.action_space)
                return pool
        except (AssertionError, RuntimeError, TypeError, ValueError) as error:
            raise ConfigError(f"{self.name} cannot be made with {self._options}: {error}") from error

    def reset(self) -> Tree:
        self._returns[:], self._lengths[:], self._ended[:] = 0.0, 0, False
        obs, _ = self._pool.reset()
        return self._encode(obs)

    def step(self, action: Any) -> Step:
        raw, reward, terminated, truncated, info = self._pool.step(self._actions.batch(self._actions.accept(action)))
        self._now += 1
        obs = self._encode(raw)
        if not all_finite(reward):
            raise EnvError(f"{self._place()}: a reward is not finite: {reward.tolist()}.")
        over = terminated | truncated
        if "terminated" in info:
            terminated = terminated | (info["terminated"] != 0)
            over = (info["terminated"] != 0) | truncated
        valid = ~self._ended
        self._ended = (terminated | truncated) & valid
        episodes = self._count(np.where(valid, info.get("reward", reward), 0.0), valid, over & valid)
        final_obs = obs if self._ended.any() else None
        return Step(obs, reward, terminated, truncated, final_obs, valid, episodes)

    def _count(self, score: np.ndarray, valid: np.ndarray, over: np.ndarray) -> list[Episode]:
        self._returns += score
        self._lengths += valid
        if not over.any():
            return []
        finished = [Episode(i, float(self._returns[i]), int(self._lengths[i])) for i in np.flatnonzero(over).tolist()]
        self._returns[over], self._lengths[over] = 0.0, 0
        return finished

    def _encode(self, obs: Any) -> Tree:
        try:
            return self._codec.batch(obs)
        except Unfit as error:
            raise EnvError(f"{self._place()}: the observations do not fit their space: {error}.") from error

    def _place(self) -> str:
        return f"{self.name}, {self.count} environments, step {self._now} under seed {self._seed}"

    def state(self) -> dict[str, Any]:
        return {"name": self.name, "count": self.count, "restores": self._restores}

    def restore(self, state: dict[str, Any]) -> Tree:
        """Begin new episodes, other ones than any before: EnvPool's seeds are fixed when it is made."""
        self._restores = int(state["restores"]) + 1
        self._pool.close()
        self._pool = self._make()
        return self.reset()

    def close(self) -> None:
        self._pool.close()
