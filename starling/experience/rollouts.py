"""Rollouts: the next steps of every environment, in order, learned from once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from starling.backends import ops
from starling.core.errors import ConfigError
from starling.core.spaces import Bool, Dict, Float
from starling.core.trees import Tree, map_leaves
from starling.envs.protocol import Step
from starling.envs.rows import put_rows
from starling.experience.cadence import EachBatch
from starling.experience.plan import Accumulator, Acted, Plan, ReturnsSoFar, StepSpaces, WholeFeed

__all__ = ["Rollouts", "first_steps", "rewards_and_discounts"]

BEHIND = ("next_obs", "memory")  # parts of a rollout without time: after its last step, before its first


@dataclass(frozen=True, kw_only=True)
class Rollouts(Plan):
    """On-policy: ``length`` steps of ``envs`` environments make a batch."""

    envs: int
    length: int  # steps of each environment, T
    returns_gamma: float | None = None  # discount of the return so far, where that is part of a step

    @property
    def batch_rows(self) -> int:
        return self.envs * self.length

    def batch_space(self, spaces: StepSpaces) -> Dict:
        """[T, B] everywhere, [B] for ``next_obs``, the observations after the last step, and for ``memory``, what
        acting carried before the first. ``bootstrap`` is the value of the observation that a cut episode ended with,
        as the acting weights saw it, 0 elsewhere; ``mask`` is 0 where a row is no step."""
        numbers = dict.fromkeys(("reward", "bootstrap", "mask"), Float())
        flags = dict.fromkeys(("terminated", "truncated"), Bool())
        returns = {} if self.returns_gamma is None else {"discounted_return": Float()}
        step = Dict({"obs": spaces.obs, "action": spaces.action, **numbers, **flags, **returns, **spaces.extras.spaces})
        behind: dict[str, Any] = {"next_obs": spaces.obs.ranked(batch=True)}
        if spaces.memory.spaces:
            behind["memory"] = spaces.memory.ranked(batch=True)
        return Dict({**step.ranked(time=True, batch=True).spaces, **behind})

    def shared(self, learners: int) -> Rollouts:
        if self.envs % learners:
            raise ConfigError(
                f"envs={self.envs} cannot be shared equally by {learners} learners; "
                f"use a multiple, such as {learners * -(-self.envs // learners)}."
            )
        return replace(self, envs=self.envs // learners)

    def envs_per_actor(self, chunks: int) -> int:
        if self.envs % chunks:
            raise ConfigError(
                f"envs={self.envs} cannot be shared equally by the {chunks} chunks of a batch; "
                f"use a multiple, such as {chunks * -(-self.envs // chunks)}."
            )
        return self.envs // chunks

    def cadence(self, total: int, workers: int = 1) -> EachBatch:
        return EachBatch(total)

    def accumulator(self, spaces: StepSpaces, envs: int, chunk: int, priorities: Any = None) -> RolloutAccumulator:
        return RolloutAccumulator(self, spaces, envs)

    def asynchronous_accumulator(
        self, spaces: StepSpaces, envs: int, chunk: int, priorities: Any = None
    ) -> ColumnAccumulator:
        return ColumnAccumulator(self, spaces, envs)

    def zeros(self, spaces: StepSpaces, envs: int) -> dict[str, Any]:
        """A rollout of so many environments, before anything is known of it."""
        return {
            name: space.zeros((envs,) if name in BEHIND else (self.length, envs))
            for name, space in self.batch_space(spaces).spaces.items()
        }

    def feed(self, spaces: StepSpaces, chunks: int, seed: int, index: int = 0) -> WholeFeed:
        return WholeFeed(chunks, _side_by_side)


class RolloutAccumulator(Accumulator):
    """[T, B] arrays of every environment's next T steps."""

    bootstraps: ClassVar[bool] = True

    def __init__(self, plan: Rollouts, spaces: StepSpaces, envs: int) -> None:
        self._plan, self._spaces, self._envs = plan, spaces, envs
        self._returns = ReturnsSoFar(envs, plan.returns_gamma or 0.0)
        self._begin()

    def _begin(self) -> None:
        self._obs: list[Tree] = []
        self._acted: list[Acted] = []
        self._steps: list[Step] = []
        self._bootstrap: dict[int, np.ndarray] = {}

    @property
    def full(self) -> bool:
        return len(self._steps) == self._plan.length

    def add(self, obs: Tree, acted: Acted, step: Step, bootstrap: np.ndarray | None) -> None:
        if bootstrap is not None:
            self._bootstrap[len(self._steps)] = bootstrap
        self._obs.append(obs)
        self._acted.append(acted)
        self._steps.append(step)

    def take(self) -> Tree:
        steps, acted = self._steps, self._acted
        reward = np.array([step.reward for step in steps])  # [T, B]
        chunk = {
            "obs": _stack(self._obs),
            "action": _stack([each.action for each in acted]),
            "reward": reward,
            "terminated": np.array([step.terminated for step in steps]),
            "truncated": np.array([step.truncated for step in steps]),
            "mask": np.array([step.valid for step in steps]).astype(np.float32),
            "bootstrap": np.zeros_like(reward),
            "next_obs": steps[-1].obs,
        }
        for name in self._spaces.extras.spaces:
            chunk[name] = _stack([each.extras[name] for each in acted])
        for t, value in self._bootstrap.items():
            chunk["bootstrap"][t] = value
        if self._spaces.memory.spaces:
            chunk["memory"] = acted[0].memory
        if self._plan.returns_gamma is not None:
            chunk["discounted_return"] = np.array([self._returns.after(step) for step in steps])
        self._begin()
        return chunk

    def blank(self) -> Tree:
        return self._plan.zeros(self._spaces, self._envs)

    def state(self) -> Tree:
        return {"returns": self._returns.running.copy()}

    def restore(self, state: Tree) -> None:
        self._returns.running = np.array(state["returns"])


class ColumnAccumulator(Accumulator):
    """[T, B] arrays of the first B columns that are full: each row fills columns of its own, and waits for no other.

    A fast row may give several columns of a chunk. That of a slow one, begun with older weights, comes in a later one.
    """

    bootstraps: ClassVar[bool] = True

    def __init__(self, plan: Rollouts, spaces: StepSpaces, envs: int) -> None:
        self._plan, self._spaces, self._envs = plan, spaces, envs
        room = 3 * envs  # columns that are being filled, that wait in a chunk not full yet, and that fill it at once
        self._data = plan.zeros(spaces, room)
        self._column, self._t = np.arange(envs), np.zeros(envs, np.int64)  # of each row
        self._full: list[int] = []
        self._free = [*range(envs, room)]
        self._versions, self._oldest = np.zeros(room, np.int64), 0  # of the weights that began each column
        self._returns = ReturnsSoFar(envs, plan.returns_gamma or 0.0)

    @property
    def full(self) -> bool:
        return len(self._full) >= self._envs

    def add(self, obs: Tree, acted: Acted, step: Step, bootstrap: np.ndarray | None) -> None:
        rows = np.flatnonzero(step.valid)
        at, columns = self._t[rows], self._column[rows]
        nothing = np.zeros(self._envs, np.float32)
        facts = {"obs": obs, "action": acted.action, "reward": step.reward, "mask": nothing + 1, **acted.extras}
        facts |= {"terminated": step.terminated, "truncated": step.truncated}
        facts |= {"bootstrap": nothing if bootstrap is None else bootstrap}
        facts |= {"discounted_return": self._returns.after(step)}
        for name in self._data.keys() - set(BEHIND):
            put_rows(self._data[name], (at, columns), facts[name], rows)
        begun, over = at == 0, at == self._plan.length - 1
        if self._spaces.memory.spaces:
            put_rows(self._data["memory"], columns[begun], acted.memory, rows[begun])
        self._versions[columns[begun]] = acted.extras["version"][rows[begun]]
        put_rows(self._data["next_obs"], columns[over], step.obs, rows[over])
        self._t[rows] = np.where(over, 0, at + 1)
        self._full += columns[over].tolist()
        self._column[rows[over]] = [self._free.pop() for _ in rows[over]]

    def take(self) -> Tree:
        columns, self._full = self._full[: self._envs], self._full[self._envs :]
        self._free += columns
        self._oldest = int(self._versions[columns].min())
        return {
            name: map_leaves(lambda x, axis=0 if name in BEHIND else 1: x.take(columns, axis), part)
            for name, part in self._data.items()
        }

    def oldest(self, first: int) -> int:
        return self._oldest

    def blank(self) -> Tree:
        return self._plan.zeros(self._spaces, self._envs)


def _stack(trees: list[Tree]) -> Tree:
    if isinstance(trees[0], np.ndarray):
        return np.array(trees)  # faster than np.stack for many small arrays
    return map_leaves(lambda *leaves: np.array(leaves), *trees)


def _side_by_side(chunks: list[Tree]) -> Tree:
    if len(chunks) == 1:
        return chunks[0]
    return {
        name: map_leaves(
            lambda *x, axis=0 if name in BEHIND else 1: np.concatenate(x, axis=axis), *(chunk[name] for chunk in chunks)
        )
        for name in chunks[0]
    }


def rewards_and_discounts(batch: Tree, reward: Any, gamma: float) -> tuple[Any, Any]:
    """(r_t, discount_t) [T, B]: 0 is the discount wherever an episode ended; where it was cut, the value of what it
    ended with is part of the reward."""
    xp = ops(reward)
    goes_on = batch["mask"] * (1.0 - xp.astype(batch["terminated"] | batch["truncated"], xp.float32))
    return reward + gamma * batch["bootstrap"], gamma * goes_on


def first_steps(batch: Tree) -> Any:
    """[T+1, B]: where an episode begins after the first step, the observation behind the last one included."""
    xp = ops(batch["mask"])
    over = batch["terminated"] | batch["truncated"] | (batch["mask"] == 0.0)  # [T, B]
    return xp.concat([xp.zeros_like(over[:1, ...]), over], axis=0)
