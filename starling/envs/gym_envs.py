"""GymEnvs: B independent gymnasium environments, stepped one after the other.

The step loop is the hot path of small environments, so it does per step, not per environment, whatever it can: episode
lengths follow from the step at which an episode began, time limits from the earliest deadline, and the actions kept
for replay are one row of a log.

Every episode begins with its own seed, so an episode is known by its seed and its actions. That is what ``state``
keeps, and ``restore`` replays.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, cast

import gymnasium as gym
import numpy as np

from starling.core.errors import EnvError, SpaceError
from starling.core.random import generator_state, restore_generator, stream
from starling.core.spaces import Bool, Dict, Space
from starling.core.trees import Tree, map_leaves
from starling.envs.actions import ActionCodec, ActionLog
from starling.envs.bounds import NEVER, BoundsWatch
from starling.envs.extras import ExtrasCodec, extras_codec
from starling.envs.failures import NOTHING, Place, broken_step, describe_misfit, describe_reset, require_count
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
from starling.envs.promises import LARGEST, broken_form, broken_info
from starling.envs.protocol import Envs, Episode, Step
from starling.envs.rows import put_row, same_bits, shared
from starling.envs.single_steps import has_ended, step_keeping_result, step_with_info
from starling.envs.spaces import ACTION_MASK, KINDS, declared_space
from starling.envs.step_note import CALL, IDLE, NOW, StepNote
from starling.envs.stripping import strip_bookkeeping

__all__ = ["GymEnvs"]


class GymEnvs(Envs):
    """B environments made by ``make_env``, a constructor without arguments.

    ``extras`` names entries of info that steps are to carry. ``first`` is the number of the first of these
    environments where they are a share of more: seeds and messages go by the number.
    """

    def __init__(
        self,
        make_env: Callable[[], gym.Env[Any, Any]],
        count: int,
        seed: int,
        name: str,
        extras: Sequence[str] = (),
        first: int = 0,
    ) -> None:
        self.count, self.name, self._first = count, name, first
        self.exact_resume = True
        self._envs = [make_env() for _ in range(count)]
        self.observation_space: Space = declared_space(self._envs[0], "observation_space", name)
        self.action_space = declared_space(self._envs[0], "action_space", name)
        self._require_equal_spaces()
        inner, limits = zip(*(strip_bookkeeping(env) for env in self._envs))
        self._steps = [env.step for env in inner]
        self._resets = [env.reset for env in inner]
        self._limits = [NEVER if limit is None else limit for limit in limits]
        self._rngs = [stream(seed, "env", first + i) for i in range(count)]
        self._bits = [cast(np.random.Philox, rng.bit_generator) for rng in self._rngs]
        self._actions = ActionCodec(self._envs[0].action_space, count)
        self._log = ActionLog(self.action_space, count)
        self._all = shared(True, count)
        self._none = shared(False, count)

        self._now = 0  # steps taken
        self._began = [0] * count  # the step at which each running episode began
        self._oldest = 0  # the smallest of them
        self._deadline = NEVER  # the first step at which a running episode reaches its limit
        self._seeds = [0] * count
        self._returns: list[float] = [0.0] * count
        self._calls = range(1, count + 1)  # what a note says of a step of each environment
        self._note = StepNote.unread(count)
        self.source_spaces = (self._envs[0].observation_space, self._envs[0].action_space)
        self._codec: Codec = observation_codec(self._envs[0].observation_space)
        # The first episodes begin here, because only a reset tells whether the environment delivers action masks.
        begun, masked = self._first_reset()
        if masked:
            self._attach_masks()
        self._masked = has_mask(self.observation_space)
        # All declare the same bounds, so whoever has the first of them looks for all.
        self._watch = BoundsWatch(name, self.observation_space if first == 0 else Dict())
        self._extras: ExtrasCodec | None = None
        self._results: list[Any] = []  # of the environments in this step, where there are extras to take from them
        if extras:
            self._attach_extras(extras, begun)
            begun = self._call_reset(0)
        self._obs = self._begin_all(begun)
        self._fresh = True

    def _require_equal_spaces(self) -> None:
        for i, env in enumerate(self._envs):
            for kind in KINDS:
                first, other = getattr(self._envs[0], kind), getattr(env, kind)
                if first != other:
                    raise SpaceError(
                        f"{self.name}: the {kind} of environment {self._first + i} is {other}, "
                        f"that of {self._first} is {first}."
                    )

    def _first_reset(self) -> tuple[Any, bool]:
        """The result of environment 0's first reset, and whether it carries an action mask."""
        self._seeds[0] = self._draw_seed(0)
        result = self._call_reset(0)
        told = broken_form("reset", result) is None and isinstance(result[1], dict)
        return result, told and ACTION_MASK in result[1]

    def _attach_masks(self) -> None:
        """From here on every observation is a pair with the info, from which the codec takes the mask."""
        try:
            mask = mask_codec(self.action_space)
        except Unfit as error:
            raise EnvError(f"{self.name}: {error}.") from None
        self._codec = MaskedCodec(self._codec, mask)
        self.observation_space = Dict(observation=self.observation_space, action_mask=Bool(mask.shape))
        self._steps = [step_with_info(step) for step in self._steps]

    def _attach_extras(self, names: Sequence[str], begun: Any) -> None:
        """Find what the extras look like, by one step of environment 0 after the reset that gave ``begun``."""
        action = self.action_space.ranked(batch=True).zeros((self.count,))
        if isinstance(self._codec, MaskedCodec):
            action[0] = np.argmax(begun[1][ACTION_MASK])  # one that is legal
        row, result = self._actions.rows(action)[0], NOTHING
        try:
            result = self._steps[0](row)
            _, _, _, _, info = cast(Any, result)
        except Exception as error:
            self._fail_step(0, result, error)
        try:
            self._extras = extras_codec(names, info)
        except UNREADABLE as error:
            raise EnvError(f"{self._place(0)}: {error}.") from None
        self.extras_space = self._extras.space
        self._steps = [step_keeping_result(step, self._results) for step in self._steps]

    def reset(self) -> Tree:
        if not self._fresh:
            self._obs = self._begin_all()
        self._fresh = False
        return self._obs

    def step(self, action: Any) -> Step:
        chosen = self._actions.accept(action)
        self._log.append(chosen, self._oldest)
        observations: list[Any] = []
        rewards: list[Any] = []
        ends: list[tuple[int, bool, bool]] = []
        result: Any = NOTHING
        rows, note = self._actions.rows(chosen), self._note.numbers
        try:
            # The note is written in the head of the loop, where it costs least.
            for note[CALL], step, row in zip(self._calls, self._steps, rows):
                result = step(row)
                observation, number, terminated, truncated, _ = result
                observations.append(observation)
                rewards.append(number)
                if (terminated is not False or truncated is not False) and has_ended(terminated, truncated):
                    ends.append((len(rewards) - 1, terminated, truncated))
        except Exception as error:
            self._fail_step(note[CALL] - 1, result, error)
        note[CALL] = IDLE
        self._now += 1
        note[NOW] = self._now
        try:
            obs = self._codec.stack(observations)
            reward = np.array(rewards, np.float32)
            # What is not finite shows in the sum, which costs a quarter of looking at each.
            if reward.ndim != 1 or not (-LARGEST < sum(rewards) < LARGEST or all_finite(reward)):
                raise Unfit("a reward is not one finite number")
            self._returns = list(map(operator.add, self._returns, rewards))
        except UNREADABLE as error:
            self._misfit(observations, rewards, chosen, error)
        if self._masked:
            self._require_choices(obs, {i for i, _, _ in ends})
        if self._now >= self._watch.next:
            self._watch.look(obs, self._now)
        extras = {} if self._extras is None else self._take_extras(self._extras)
        if ends or self._now >= self._deadline:
            return self._finish(obs, reward, ends, extras)
        self._obs = obs
        return Step(obs, reward, self._none, self._none, None, self._all, [], extras)

    def _require_choices(self, obs: Tree, ended: set[int]) -> None:
        """Refuse masks that allow nothing, but where nobody acts any more."""
        for i in rows_without_choice(obs):
            if i not in ended:
                raise EnvError(f"{self._place(i)}: {NO_CHOICE}")

    def _finish(
        self, final_obs: Tree, reward: np.ndarray, ends: list[tuple[int, bool, bool]], extras: dict[str, Tree]
    ) -> Step:
        """The step in which at least one episode ended: report it and begin the next."""
        terminated, truncated = self._none.copy(), self._none.copy()
        for i, by_itself, cut in ends:
            terminated[i], truncated[i] = bool(by_itself), bool(cut)
        if self._now >= self._deadline:
            truncated |= np.array(self._began) + self._limits <= self._now
        obs = map_leaves(np.copy, final_obs)
        episodes = []
        for i in (terminated | truncated).nonzero()[0].tolist():
            episodes.append(Episode(i, float(self._returns[i]), self._now - self._began[i]))
            put_row(obs, i, self._begin(i))
        self._set_deadline()
        self._obs = obs
        return Step(obs, reward, terminated, truncated, final_obs, self._all, episodes, extras)

    def _take_extras(self, codec: ExtrasCodec) -> dict[str, Tree]:
        infos = [result[4] for result in self._results[-self.count :]]
        self._results.clear()
        try:
            return codec.stack(infos)
        except UNREADABLE as error:
            for i, info in enumerate(infos):
                try:
                    codec.stack([info])
                except UNREADABLE as reason:
                    raise EnvError(f"{self._place(i)}: {broken_info(info) or f'{reason}.'}") from None
            raise EnvError(f"{self.name}: the extras of the environments do not fit together: {error}.") from None

    def _begin_all(self, first: Any = None) -> Tree:
        rows = [self._begin(i, first if i == 0 else None) for i in range(self.count)]
        self._set_deadline()
        obs = map_leaves(lambda *parts: np.concatenate(parts), *rows)
        self._watch.look(obs, self._now)
        return obs

    def _set_deadline(self) -> None:
        self._oldest = min(self._began)
        self._deadline = min(map(operator.add, self._began, self._limits))

    def _begin(self, i: int, result: Any = None) -> Tree:
        """Begin an episode of environment i (unless ``result`` is what its reset gave); its observation [1, …]."""
        self._began[i], self._returns[i] = self._now, 0.0
        if result is None:
            self._seeds[i] = self._draw_seed(i)
            result = self._call_reset(i)
        try:
            observation, info = result
            obs = self._codec.stack([(observation, info) if isinstance(self._codec, MaskedCodec) else observation])
        except UNREADABLE as error:
            raise EnvError(f"{self._place(i)}: {describe_reset(result, error)}") from None
        if self._masked and rows_without_choice(obs):
            raise EnvError(f"{self._place(i)}: {NO_CHOICE}")
        return obs

    def _draw_seed(self, i: int) -> int:
        return int(self._bits[i].random_raw()) >> 33  # 31 bits: what every environment takes

    def _call_reset(self, i: int) -> Any:
        note = self._note
        note.begin(i, self._seeds[i], self._began[i])
        note.numbers[CALL] = -self._calls[i]
        try:
            return self._resets[i](seed=self._seeds[i])
        except Exception as error:
            self._raise_from(i, "reset", error)
        finally:
            note.numbers[CALL] = IDLE

    def _place(self, i: int) -> Place:
        return Place(self.name, self._first + i, self._seeds[i], self._now - self._began[i])

    def _fail_step(self, i: int, result: Any, error: Exception) -> NoReturn:
        """Say what environment i did: its step raised, or what it returned, the last ``result``, cannot be read."""
        self._now += 1
        self._note.numbers[CALL] = IDLE
        broken = broken_step(result)
        if broken is not None:
            raise EnvError(f"{self._place(i)}: {broken}") from None
        self._raise_from(i, "step", error)

    def _raise_from(self, i: int, method: str, error: Exception) -> NoReturn:
        raise EnvError(f"{self._place(i)}: {method}() raised {type(error).__name__}: {error}") from error

    def _misfit(self, observations: list[Any], rewards: list[Any], action: Tree, error: Exception) -> NoReturn:
        """Say whose result does not fit, and why."""
        culprit = describe_misfit(self._codec, observations, rewards, action)
        if culprit is None:
            raise EnvError(f"{self.name}: the results of the environments do not fit together: {error}.") from None
        raise EnvError(f"{self._place(culprit[0])}: {culprit[1]}") from None

    def keep(self, note: StepNote) -> None:
        """From here on write to ``note`` what is under way."""
        self._note = note
        self._write_note()

    def _write_note(self) -> None:
        for i, (seed, began) in enumerate(zip(self._seeds, self._began)):
            self._note.begin(i, seed, began)
        self._note.numbers[NOW] = self._now

    def state(self) -> dict[str, Any]:
        states = [self._state_of(i) for i in range(self.count)]
        return {"name": self.name, "obs": map_leaves(np.copy, self._obs), "envs": states}

    def _state_of(self, i: int) -> dict[str, Any]:
        actions = self._log.since(self._began[i], i)
        return {
            "seed": self._seeds[i],
            "actions": actions if actions is not None else self._log.nothing(),
            "length": self._now - self._began[i],
            "return": float(self._returns[i]),
            "generator": generator_state(self._rngs[i]),
        }

    def restore(self, state: dict[str, Any]) -> Tree:
        saved = state["envs"]
        require_count(self.name, len(saved), self.count)
        self._fresh, self.exact_resume = False, True
        self._now = max(int(episode["length"]) for episode in saved)
        rows, played = [], []
        for i, episode in enumerate(saved):
            restore_generator(self._rngs[i], episode["generator"])
            expected = map_leaves(lambda leaf, i=i: leaf[i : i + 1], state["obs"])
            obs = self._replay(i, episode)
            if obs is not None and same_bits(obs, expected):
                self._began[i], self._returns[i] = self._now - int(episode["length"]), float(episode["return"])
                played.append(episode["actions"])
            else:
                self.exact_resume = False
                obs = self._begin(i)
                played.append(self._log.nothing())
            rows.append(obs)
        self._set_deadline()
        self._write_note()
        self._results.clear()
        self._log.put_back(played, self._now)
        self._obs = map_leaves(lambda *parts: np.concatenate(parts), *rows)
        return self._obs

    def _replay(self, i: int, episode: dict[str, Any]) -> Tree | None:
        """The observation [1, …] after the saved actions, or None where they do not lead to one."""
        actions = self._actions.replay_rows(episode["actions"])
        if len(actions) != episode["length"]:
            return None
        self._seeds[i] = int(episode["seed"])
        try:
            obs = self._begin(i, self._call_reset(i))
            for action in actions:
                observation, _, terminated, truncated, _ = self._steps[i](action)
                if terminated or truncated:
                    return None
            return self._codec.stack([observation]) if actions else obs
        except Exception:  # whatever breaks under replay cannot be put back; a new episode begins instead
            return None

    def close(self) -> None:
        for env in self._envs:
            env.close()
