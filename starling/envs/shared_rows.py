"""The rows of B environments in shared memory: actions go one way, what they led to comes back.

The layout follows from the spaces alone, so both sides have the same. A row belongs to one side at a time: to the
worker from the message that asks it to act until its answer, to the other side before and after.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from starling.core.segments import Field, Segment
from starling.core.spaces import Dict, Space
from starling.core.trees import Tree, leaves, map_leaves, refilled
from starling.envs.protocol import Episode, Step
from starling.envs.rows import rows_from, shared
from starling.envs.step_note import NOTE

__all__ = ["SharedRows"]

Rows = np.ndarray | slice


class SharedRows:
    """``count`` rows of environments with these spaces; made anew, or found at ``descriptor``."""

    def __init__(
        self, observation: Space, action: Space, extras: Dict, count: int, descriptor: int | None = None
    ) -> None:
        trees = {"action": action, "obs": observation, "final": observation, "extras": extras}
        self.fields: list[Field] = [
            (f"{name}:{path}", (count, *leaf.shape), leaf.dtype)
            for name, space in trees.items()
            for path, leaf in space.items()
        ]
        self.fields += [
            ("reward", (count,), "float32"),
            ("terminated", (count,), "bool"),
            ("truncated", (count,), "bool"),
        ]
        self.fields += [("returns", (count,), "float64"), ("lengths", (count,), "int64")]
        self.fields += [("notes", (count, NOTE), "int64")]
        self.segment = Segment(self.fields, descriptor)
        arrays = self.segment.arrays
        found: dict[str, Tree] = {
            name: refilled(
                space.ranked(batch=True).zeros((0,)), [arrays[f"{name}:{path}"] for path, _ in space.items()]
            )
            for name, space in trees.items()
        }
        self.action, self.obs, self._final, self._extras = (found[name] for name in trees)
        self._action_leaves, self._obs_leaves, self._final_leaves = map(leaves, (self.action, self.obs, self._final))
        self.reward, self.terminated, self.truncated = (arrays[name] for name in ("reward", "terminated", "truncated"))
        self._returns, self._lengths = arrays["returns"], arrays["lengths"]
        self.notes = arrays["notes"]  # of what each worker is about to do: see ``step_note``
        self._none, self._all = shared(False, count), shared(True, count)

    def write_actions(self, rows: Rows, action: Tree) -> None:
        for target, source in zip(self._action_leaves, leaves(action), strict=True):
            target[rows] = source

    def actions(self, rows: slice) -> Tree:
        """The actions of ``rows``, not copied."""
        return map_leaves(lambda leaf: leaf[rows], self.action)

    def write_first(self, rows: slice, obs: Tree) -> None:
        """Write the observations that episodes begin with; no step led to them."""
        for target, source in zip(self._obs_leaves, leaves(obs), strict=True):
            target[rows] = source
        self.reward[rows], self.terminated[rows], self.truncated[rows] = 0.0, False, False
        for extra in leaves(self._extras):
            extra[rows] = 0

    def write(self, rows: slice, step: Step) -> None:
        """Write what a step of ``rows`` gave."""
        for target, source in zip(self._obs_leaves, leaves(step.obs), strict=True):
            target[rows] = source
        self.reward[rows], self.terminated[rows], self.truncated[rows] = step.reward, step.terminated, step.truncated
        if step.final_obs is not None:
            for target, source in zip(self._final_leaves, leaves(step.final_obs), strict=True):
                target[rows] = source
        for episode in step.episodes:
            row = rows.start + episode.env
            self._returns[row], self._lengths[row] = episode.ret, episode.length
        for key, extra in step.extras.items():
            self._extras[key][rows] = extra

    def first(self) -> Tree:
        """The observations of all rows."""
        return map_leaves(np.copy, self.obs)

    def read(self) -> Step:
        """What a step of all rows gave."""
        step = self._read(np.copy)
        if step.final_obs is None:
            step.terminated = step.truncated = self._none
        step.valid = self._all
        return step

    def read_rows(self, rows: np.ndarray, valid: np.ndarray) -> Step:
        """What the steps of some rows gave."""
        step = self._read(lambda leaf: leaf[rows])
        step.valid = valid
        step.episodes = [Episode(int(rows[env]), ret, length) for env, ret, length in step.episodes]
        return step

    def _read(self, take: Any) -> Step:
        obs, extras = map_leaves(take, self.obs), map_leaves(take, self._extras)
        terminated, truncated = take(self.terminated), take(self.truncated)
        step = Step(obs, take(self.reward), terminated, truncated, None, self._all, [], extras)
        ended = terminated | truncated
        if 1 in ended.tobytes():
            step.final_obs = rows_from(ended, map_leaves(take, self._final), obs)
            returns, lengths = take(self._returns).tolist(), take(self._lengths).tolist()
            step.episodes = [Episode(i, returns[i], lengths[i]) for i in np.flatnonzero(ended).tolist()]
        return step
