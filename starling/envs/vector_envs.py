"""VectorEnvs: a ready-made ``gymnasium.vector.VectorEnv``, whatever its way of beginning new episodes.

    NEXT_STEP   the step after an end ignores its action and delivers the reset observation: that row is not valid
    SAME_STEP   the ending step delivers the reset observation; the true successor is in ``infos["final_obs"]``
    DISABLED    nothing happens by itself: the ended rows are reset here, in the same step

A vectorised environment cannot be asked where it is, so ``restore`` begins new episodes, unless it was found that
its attributes say it all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from starling.core.errors import ConfigError, EnvError
from starling.core.random import generator_state, restore_generator, stream
from starling.core.spaces import Bool, Dict, Space
from starling.core.trees import Tree, map_leaves
from starling.envs.actions import ActionCodec
from starling.envs.bounds import BoundsWatch
from starling.envs.extras import ExtrasCodec, extras_codec, missing
from starling.envs.failures import require_count
from starling.envs.masks import NO_CHOICE, has_mask, rows_without_choice
from starling.envs.observations import (
    UNREADABLE,
    Codec,
    MaskedCodec,
    Unfit,
    all_finite,
    mask_codec,
    observation_codec,
)
from starling.envs.promises import broken_flags, broken_form, broken_info, broken_reward, shown
from starling.envs.protocol import Envs, Episode, Step
from starling.envs.rows import put_row, rows_from, shared
from starling.envs.snapshots import put_back, snapshot
from starling.envs.spaces import ACTION_MASK, declared_space

__all__ = ["VectorEnvs", "autoreset_mode"]

BOOL = np.dtype(np.bool_)


def autoreset_mode(env: VectorEnv[Any, Any, Any], name: str) -> AutoresetMode:
    """How ``env`` begins new episodes, which it must declare."""
    declared = env.metadata.get("autoreset_mode")
    try:
        return AutoresetMode(declared)
    except ValueError:
        modes = ", ".join(f"AutoresetMode.{mode.name}" for mode in AutoresetMode)
        raise ConfigError(
            f"{name}: metadata['autoreset_mode'] is {declared!r}; it must be one of {modes}, because stored experience "
            "is wrong at every episode end if it is guessed. Set it in the environment's metadata."
        ) from None


class VectorEnvs(Envs):
    """The B environments of a VectorEnv.

    ``exact``: it can be put back by its attributes, see ``snapshots``. ``extras`` names entries of its infos that steps
    are to carry.
    """

    def __init__(
        self, env: VectorEnv[Any, Any, Any], seed: int, name: str, exact: bool = False, extras: Sequence[str] = ()
    ) -> None:
        self.count, self.name = int(env.num_envs), name
        self.exact_resume = self._exact = exact
        self._env = env
        self._mode = autoreset_mode(env, name)
        self._seed, self._restores = seed, 0
        self._rng = stream(seed, "env", "vector")
        self.observation_space: Space = declared_space(env, "single_observation_space", name)
        self.action_space = declared_space(env, "single_action_space", name)
        self._codec: Codec = observation_codec(env.single_observation_space)
        self._actions = ActionCodec(env.single_action_space, self.count)
        self._shape = (self.count,)
        self._all = shared(True, self.count)
        self._now = 0  # steps taken
        self._returns = np.zeros(self.count)
        self._began = np.zeros(self.count, np.int64)  # the step at which each running episode began
        self._waiting: np.ndarray | None = None  # rows that NEXT_STEP resets in the coming step, where there are any
        self._extras: ExtrasCodec | None = None
        # The first episodes begin here, because only a reset tells whether the environment delivers action masks.
        self._obs = self._begin(first=True, extras=extras)
        self._watch = BoundsWatch(name, self.observation_space)
        self._watch.look(self._obs, self._now)
        self._fresh = True

    def reset(self) -> Tree:
        if not self._fresh:
            self._obs = self._begin()
        self._fresh = False
        return self._obs

    def _begin(self, first: bool = False, extras: Sequence[str] = ()) -> Tree:
        self._returns[:], self._began[:], self._waiting = 0.0, self._now, None
        seed = int(self._rng.integers(2**30))
        obs, infos = self._call_reset(seed=seed)
        if first and ACTION_MASK in infos:
            mask = self._fitted(mask_codec, self.action_space)
            self._codec = MaskedCodec(self._codec, mask)
            self.observation_space = Dict(observation=self.observation_space, action_mask=Bool(mask.shape))
        if extras:
            self._attach_extras(extras, infos)
            obs, infos = self._call_reset(seed=seed)
        self._masked = has_mask(self.observation_space)
        begun = self._encode(obs, infos)
        if self._masked:
            self._require_choices(begun)
        return begun

    def _attach_extras(self, names: Sequence[str], infos: dict[str, Any]) -> None:
        """Find what the extras look like, by one step after the reset that gave ``infos``."""
        action = self.action_space.ranked(batch=True).zeros((self.count,))
        if isinstance(self._codec, MaskedCodec):
            action = np.argmax(infos[ACTION_MASK], axis=-1)
        try:
            result = self._env.step(self._actions.batch(action))
        except Exception as error:
            self._raised("step", error)
        infos = self._parts("step", result)[-1]
        try:
            self._extras = extras_codec(
                names, {key: rows[0] for key, rows in infos.items() if isinstance(rows, np.ndarray)}
            )
        except Unfit as error:
            raise EnvError(f"{self._place()}: {error}.") from None
        self.extras_space = self._extras.space

    def step(self, action: Any) -> Step:
        sent = self._actions.batch(self._actions.accept(action))
        try:
            result = self._env.step(sent)
        except Exception as error:
            self._raised("step", error)
        self._now += 1
        raw_obs, reward, terminated, truncated, infos = self._read(result)
        obs = self._encode(raw_obs, infos)
        if self._now >= self._watch.next:
            self._watch.look(obs, self._now)
        ended, valid = terminated | truncated, self._all
        if self._waiting is None:
            self._returns += reward
        else:
            valid = ~self._waiting
            ended &= valid
            self._returns[valid] += reward[valid]
            self._began[self._waiting] = self._now
            self._waiting = None
        extras = {} if self._extras is None else self._take_extras(self._extras, infos, valid, ended)
        step = Step(obs, reward, terminated, truncated, None, valid, [], extras)
        if 1 in ended.tobytes():  # a search of bytes: less than half the cost of any()
            self._finish(step, ended, infos)
        if self._masked:
            self._require_choices(step.obs)
        self._obs = step.obs
        return step

    def _require_choices(self, obs: Tree) -> None:
        """Refuse masks that allow nothing, but in rows where the next action has no effect."""
        for i in rows_without_choice(obs):
            if self._waiting is None or not self._waiting[i]:
                raise EnvError(f"{self._place()}, environment {i}: {NO_CHOICE}")

    def _take_extras(
        self, codec: ExtrasCodec, infos: dict[str, Any], valid: np.ndarray, ended: np.ndarray
    ) -> dict[str, Tree]:
        """The extras of the valid rows, 0 in the others; SAME_STEP keeps those of ended rows apart."""
        moved = ended if self._mode is AutoresetMode.SAME_STEP else np.zeros_like(ended)
        sources = [(infos, valid & ~moved), (infos.get("final_info", infos), moved)]
        taken = codec.zeros(self.count)
        for key in codec.leaves:
            for source, rows in sources:
                if not rows.any():
                    continue
                if key not in source or not np.all(source.get(f"_{key}", self._all)[rows]):
                    raise EnvError(f"{self._place()}: {missing(key, source)} (for every row).")
                values = np.asarray(source[key])[rows].tolist()
                taken[key][rows] = self._fitted(functools.partial(codec.fit, key), values)
        return taken

    def _finish(self, step: Step, ended: np.ndarray, infos: dict[str, Any]) -> None:
        """The step in which at least one episode ended: report it, and see that the next begins."""
        rows = np.flatnonzero(ended).tolist()
        step.episodes = [Episode(i, float(self._returns[i]), int(self._now - self._began[i])) for i in rows]
        self._returns[ended], self._began[ended] = 0.0, self._now
        if self._mode is AutoresetMode.NEXT_STEP:
            self._waiting = ended
        step.obs, step.final_obs = self._successors(step.obs, ended, infos)

    def _parts(self, method: str, result: Any) -> Any:
        """What reset() or step() returned, which has as many parts as it should."""
        broken = broken_form(method, result) or broken_info(result[-1])
        if broken is not None:
            raise EnvError(f"{self._place()}: {broken}")
        return result

    def _read(self, result: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """The parts of what step() returned, its rewards and flags as arrays [B] of our own."""
        try:
            raw_obs, rewards, terminations, truncations, infos = result
            reward = np.array(rewards, np.float32)
            terminated, truncated = np.array(terminations), np.array(truncations)
        except UNREADABLE:
            self._refuse(result)
        if terminated.dtype is not BOOL or truncated.dtype is not BOOL:
            terminated, truncated = self._as_flags(terminated, result), self._as_flags(truncated, result)
        shapes_fit = reward.shape == terminated.shape == truncated.shape == self._shape
        if not (shapes_fit and all_finite(reward) and isinstance(infos, dict)):
            self._refuse(result)
        return raw_obs, reward, terminated, truncated, infos

    def _as_flags(self, array: np.ndarray, result: Any) -> np.ndarray:
        if array.dtype.kind not in "biu":
            self._refuse(result)
        return array.astype(np.bool_)

    def _refuse(self, result: Any) -> NoReturn:
        """Say what is wrong with what step() returned."""
        _, rewards, terminations, truncations, _ = self._parts("step", result)
        arrived = {"rewards": rewards, "terminations": terminations, "truncations": truncations}
        columns = {what: np.asarray(values, object) for what, values in arrived.items()}
        for what, column in columns.items():
            if column.shape != self._shape:
                raise EnvError(
                    f"{self._place()}: {what} of shape {list(column.shape)} arrived, [{self.count}] expected."
                )
        for i, (reward, *flags) in enumerate(zip(*columns.values())):
            broken = broken_reward(reward) or broken_flags(*flags)
            if broken is not None:
                raise EnvError(f"{self._place()}, environment {i}: {broken}")
        raise EnvError(f"{self._place()}: the rewards {shown(rewards)} cannot be read.")

    def _successors(self, obs: Tree, ended: np.ndarray, infos: dict[str, Any]) -> tuple[Tree, Tree]:
        """What the policy acts on next, and the true successors."""
        if self._mode is AutoresetMode.NEXT_STEP:
            return obs, obs
        if self._mode is AutoresetMode.SAME_STEP:
            return obs, self._final_from(obs, ended, infos)
        raw, infos = self._call_reset(options={"reset_mask": ended.copy()})
        return rows_from(ended, self._encode(raw, infos, ended), obs), obs

    def _final_from(self, obs: Tree, ended: np.ndarray, infos: dict[str, Any]) -> Tree:
        if "final_obs" not in infos:
            raise EnvError(
                f"{self._place()}: an episode ended and infos has no 'final_obs', which SAME_STEP promises; "
                f"keys {sorted(infos)} arrived."
            )
        final = map_leaves(np.copy, obs)
        final_info = infos.get("final_info")
        masks = final_info.get(ACTION_MASK) if isinstance(final_info, dict) else None
        for i in np.flatnonzero(ended).tolist():
            row = _row(infos["final_obs"], i)
            if isinstance(self._codec, MaskedCodec):
                # Where the last mask is not told, every action may be legal.
                row = (row, {ACTION_MASK: np.ones(self._codec.mask.shape, np.bool_) if masks is None else masks[i]})
            put_row(final, i, self._fitted(self._codec.stack, [row]))
        return final

    def _encode(self, obs: Any, infos: dict[str, Any], rows: np.ndarray | None = None) -> Tree:
        """The batch ``obs``; the masks are looked for in ``rows`` alone where given."""
        if not isinstance(self._codec, MaskedCodec):
            return self._fitted(self._codec.batch, obs)
        delivered = infos.get(f"_{ACTION_MASK}", np.ones(self.count, np.bool_))
        if ACTION_MASK not in infos or not np.all(delivered if rows is None else delivered[rows]):
            raise EnvError(f"{self._place()}: infos has no 'action_mask' for some rows; deliver it at every step.")
        return self._fitted(self._codec.batch, (obs, infos))

    def _fitted(self, encode: Callable[[Any], Any], value: Any) -> Any:
        try:
            return encode(value)
        except UNREADABLE as error:
            reason = str(error) if isinstance(error, Unfit) else f"it cannot be read: {error}"
            raise EnvError(f"{self._place()}: what arrived does not fit its space: {reason}.") from None

    def _call_reset(self, **kwargs: Any) -> Any:
        try:
            result = self._env.reset(**kwargs)
        except Exception as error:
            self._raised("reset", error)
        return self._parts("reset", result)

    def _raised(self, method: str, error: Exception) -> NoReturn:
        raise EnvError(f"{self._place()}: {method}() raised {type(error).__name__}: {error}") from error

    def _place(self) -> str:
        return f"{self.name}, {self.count} environments, step {self._now} under seed {self._seed}"

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = {"name": self.name, "count": self.count, "restores": self._restores}
        if self._exact:
            waiting = np.zeros(self.count, np.bool_) if self._waiting is None else self._waiting
            state |= {"env": snapshot(self._env), "obs": map_leaves(np.copy, self._obs), "waiting": waiting.copy()}
            state |= {"returns": self._returns.copy(), "lengths": self._now - self._began}
            state["generator"] = generator_state(self._rng)
        return state

    def restore(self, state: dict[str, Any]) -> Tree:
        """Go back, or where that is not possible begin new episodes, other ones than any before."""
        require_count(self.name, int(state["count"]), self.count)
        self._fresh, self.exact_resume = False, self._exact and "env" in state
        if self.exact_resume:
            self._put_back(state)
            return self._obs
        self._restores = int(state["restores"]) + 1
        self._rng = stream(self._seed, "env", "vector", self._restores)
        self._obs = self._begin()
        return self._obs

    def _put_back(self, state: dict[str, Any]) -> None:
        put_back(self._env, state["env"])
        restore_generator(self._rng, state["generator"])
        self._restores, self._obs = int(state["restores"]), map_leaves(np.copy, state["obs"])
        self._returns[:], self._now = state["returns"], int(np.max(state["lengths"]))
        self._began[:] = self._now - np.asarray(state["lengths"])
        self._waiting = np.array(state["waiting"], np.bool_) if np.any(state["waiting"]) else None

    def close(self) -> None:
        self._env.close()


def _row(final_obs: Any, i: int) -> Any:
    """Row i of final observations, which come as an array of rows or as a tree of batches."""
    if isinstance(final_obs, (dict, tuple)):
        return map_leaves(lambda batch: batch[i], final_obs)
    return final_obs[i]
