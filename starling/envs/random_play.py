"""Random play in one environment, looking at everything it returns."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from starling.core.random import stream
from starling.core.trees import leaves, map_leaves
from starling.envs.actions import ActionCodec
from starling.envs.bounds import outside_bounds
from starling.envs.check_results import CheckResult, error, ok, warning
from starling.envs.masks import NO_CHOICE
from starling.envs.observations import UNREADABLE, observation_codec
from starling.envs.promises import Broken, broken_flags, broken_form, broken_info, broken_reward
from starling.envs.spaces import ACTION_MASK, from_gymnasium

__all__ = ["RandomPlay"]

OBSERVATION_REMEDY = "Return what observation_space declares, or declare what you return."


class RandomPlay:
    """Plays ``steps`` random steps and keeps the first finding of each kind."""

    def __init__(self, env: gym.Env[Any, Any], seed: int, steps: int) -> None:
        self._env, self._steps = env, steps
        self._rng = stream(seed, "check")
        self._codec = observation_codec(env.observation_space)
        self._space = from_gymnasium(env.observation_space)
        self._actions = ActionCodec(env.action_space, 1)
        self._found: dict[str, CheckResult] = {}
        self._place = ""
        self._previous: tuple[Any, Any] | None = None  # the last observation, and a copy taken when it arrived
        self._ends: list[tuple[int, bool, bool]] = []  # length, terminated, truncated of each episode

    def run(self) -> list[CheckResult]:
        self._look_at_seeding()
        if "seeding" not in self._found and self._reset():
            self._play()
        return self._report()

    def _note(self, finding: CheckResult) -> None:
        self._found.setdefault(finding.what, finding)

    def _note_broken(self, what: str, broken: Broken | None) -> bool:
        """Whether a promise is kept; where it is ``broken`` that is an error."""
        if broken is not None:
            self._note(error(what, f"{broken.found} at {self._place}", broken.rule, broken.remedy))
        return broken is None

    def _look_at_seeding(self) -> None:
        parameters = inspect.signature(self._env.unwrapped.reset).parameters.values()
        takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
        if not takes_any and "seed" not in {p.name for p in parameters}:
            rule = "reset(seed=...) makes an episode repeatable; runs are reproducible through it alone."
            remedy = "Declare reset(self, *, seed=None, options=None), and call super().reset(seed=seed) in it."
            self._note(error("seeding", "reset() takes no seed", rule, remedy))

    def _reset(self) -> bool:
        """Begin an episode; False where going on makes no sense."""
        self._place, self._previous = "reset()", None
        try:
            result = self._env.reset(seed=int(self._rng.integers(2**31)))
        except Exception as problem:
            return self._raised("reset()", problem)
        if not self._note_broken("results", broken_form("reset", result)):
            return False
        self._note_broken("info", broken_info(result[1]))
        return self._look_at_observation(result[0]) and self._look_at_mask(*result)

    def _play(self) -> None:
        length = 0
        space = self._actions.space.ranked(batch=True)
        for _ in range(self._steps):
            length += 1
            self._place = f"step {length} of an episode"
            try:
                result = self._env.step(self._actions.rows(space.sample(self._rng, (1,)))[0])
            except Exception as problem:
                self._raised("step()", problem)
                return
            if not self._note_broken("results", broken_form("step", result)):
                return
            observation, reward, terminated, truncated, info = result
            self._note_broken("info", broken_info(info))
            self._note_broken("reward", broken_reward(reward))
            if not (self._look_at_observation(observation) and self._look_at_flags(terminated, truncated)):
                return
            if terminated or truncated:
                self._ends.append((length, bool(terminated), bool(truncated)))
                length = 0
                if not self._reset():
                    return
            elif not self._look_at_mask(observation, info):
                return

    def _raised(self, where: str, problem: Exception) -> bool:
        found = f"{where} raised {type(problem).__name__}: {problem}, at {self._place}"
        remedy = "Run that call alone under a debugger; the actions were drawn from action_space."
        self._note(error("exceptions", found, "No action that the action space allows may raise.", remedy))
        return False

    def _look_at_flags(self, terminated: Any, truncated: Any) -> bool:
        """Whether they can be read; a number that stands for a truth value is worth a word."""
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(flag, (bool, np.bool_)) and broken_flags(flag, False) is None:
                found = f"{name} is {type(flag).__name__} ({flag!r:.40}) at {self._place}"
                self._note(warning("end flags", found, "terminated and truncated are bool.", f"Return bool({name})."))
        return self._note_broken("end flags", broken_flags(terminated, truncated))

    def _look_at_observation(self, observation: Any) -> bool:
        rule = f"Every observation is in observation_space, {self._env.observation_space}."
        try:
            encoded = self._codec.stack([observation])
        except UNREADABLE as problem:
            self._note(error("observation", f"{problem}, at {self._place}", rule, OBSERVATION_REMEDY))
            return False
        self._look_at_reuse(observation)
        broken = outside_bounds(self._space, encoded)
        if broken is not None:
            self._note(warning("bounds", f"{broken.found}, at {self._place}", broken.rule, broken.remedy))
        return True

    def _look_at_mask(self, observation: Any, info: Any) -> bool:
        """Whether there is a legal action, where a mask says which ones are."""
        masks = [told[ACTION_MASK] for told in (observation, info) if isinstance(told, dict) and ACTION_MASK in told]
        return self._note_broken("action mask", None if all(np.any(mask) for mask in masks) else NO_CHOICE)

    def _look_at_reuse(self, observation: Any) -> None:
        if self._previous is not None:
            last, copy = self._previous
            shared = any(np.may_share_memory(a, b) for a, b in zip(_arrays(last), _arrays(observation)))
            changed = any(a.tobytes() != b.tobytes() for a, b in zip(_arrays(last), _arrays(copy)))
            if shared or changed:
                rule = "A returned observation is not written to again."
                remedy = "Return observation.copy(). Starling copies at once, so training is right; others may not."
                self._note(warning("buffers", f"the observation before {self._place} was overwritten", rule, remedy))
        self._previous = (observation, map_leaves(np.array, observation))

    def _report(self) -> list[CheckResult]:
        findings = list(self._found.values())
        if not any(finding.level == "error" for finding in findings):
            findings += self._episode_ends()
        passed = {
            "seeding": "reset() takes a seed",
            "observation": f"{self._steps} observations are in {self._space}",
            "bounds": "observations stay within their bounds",
            "reward": "rewards are finite numbers",
            "info": "info is a dict",
            "buffers": "observations are fresh arrays",
        }
        stopped = any(f.level == "error" and f.what not in ("info", "reward") for f in self._found.values())
        return findings + [ok(k, text) for k, text in passed.items() if k not in self._found and not stopped]

    def _episode_ends(self) -> Iterator[CheckResult]:
        if not self._ends:
            rule = "Episodes end: learning from returns, evaluation and resuming need them to."
            remedy = "Give max_episode_steps=…, which truncates, unless the task is meant to go on for ever."
            yield warning("ends", f"no episode ended in {self._steps} random steps", rule, remedy)
            return
        lengths = {length for length, _, _ in self._ends}
        terminated = sum(t for _, t, _ in self._ends)
        truncated = sum(c for _, _, c in self._ends)
        if len(self._ends) > 2 and len(lengths) == 1 and terminated == len(self._ends) and truncated == 0:
            found = f"all {len(self._ends)} episodes ended with terminated=True after exactly {lengths.pop()} steps"
            rule = "A time limit is truncated=True: the future beyond it still has value."
            remedy = "If this is a time limit, return truncated=True; a task that truly ends there is right as it is."
            yield warning("ends", found, rule, remedy)
            return
        yield ok("ends", f"{len(self._ends)} episodes: {terminated} terminated, {truncated} truncated")


def _arrays(observation: Any) -> list[np.ndarray]:
    return [leaf for leaf in leaves(observation) if isinstance(leaf, np.ndarray)]
