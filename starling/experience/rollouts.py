"""Rollouts: the next steps of every environment, in order, learned from once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from starling.core.spaces import Dict, Float
from starling.core.trees import Tree, map_leaves
from starling.data.adders.columns import TIMELESS, StepColumns, column_signature
from starling.data.adders.returns import ReturnsSoFar
from starling.envs.protocol import Step
from starling.experience.on_policy import OnPolicy, facts_of
from starling.experience.plan import Accumulator, Acted, StepSpaces, equal_share

__all__ = ["Rollouts"]


@dataclass(frozen=True, kw_only=True)
class Rollouts(OnPolicy):
    """On-policy: ``length`` steps of ``envs`` environments make a batch."""

    length: int  # steps of each environment, T
    returns_gamma: float | None = None  # discount of the return so far, where that is part of a step

    @property
    def batch_rows(self) -> int:
        return self.envs * self.length

    def batch_space(self, spaces: StepSpaces) -> Dict:
        """[T, B] everywhere, [B] for ``next_obs``, the observations after the last step, and for ``memory``, what
        acting carried before the first. ``bootstrap`` is the value of the observation that a cut episode ended with,
        as the acting weights saw it, 0 elsewhere; ``mask`` is 0 where a row is no step."""
        returns = {} if self.returns_gamma is None else {"discounted_return": Float()}
        behind = {"next_obs": spaces.obs, **({"memory": spaces.memory} if spaces.memory.spaces else {})}
        steps = column_signature(spaces.obs, spaces.action, bootstrap=Float(), **returns, **spaces.extras.spaces).spaces
        return Dict({**steps, **Dict(behind).ranked(batch=True).spaces})

    def shared(self, learners: int) -> Rollouts:
        return replace(self, envs=equal_share("envs", self.envs, learners, f"{learners} learners"))

    def accumulator(self, spaces: StepSpaces, envs: int, chunk: int, priorities: Any = None) -> RolloutAccumulator:
        return RolloutAccumulator(self, spaces, envs)

    def asynchronous_accumulator(
        self, spaces: StepSpaces, envs: int, chunk: int, priorities: Any = None
    ) -> ColumnAccumulator:
        return ColumnAccumulator(self, spaces, envs)


class StepsAccumulator(Accumulator):
    """What accumulators of rollouts share: the facts of a step, and the layout."""

    bootstraps: ClassVar[bool] = True

    def __init__(self, plan: Rollouts, spaces: StepSpaces, envs: int) -> None:
        self._space, self._length, self._envs = plan.batch_space(spaces), plan.length, envs
        self._nothing = np.zeros(envs, np.float32)
        self._returns = ReturnsSoFar(envs, plan.returns_gamma or 0.0)

    def _facts(self, obs: Tree, acted: Acted, step: Step, bootstrap: np.ndarray | None) -> dict[str, Tree]:
        """A step's part of a chunk, and what a chunk has before its first and after its last."""
        facts = {**facts_of(obs, acted, step), "memory": acted.memory, "next_obs": step.obs}
        facts["bootstrap"] = self._nothing if bootstrap is None else np.asarray(bootstrap, np.float32)
        if "discounted_return" in self._space.spaces:
            facts["discounted_return"] = self._returns.after(step.reward, step.terminated, step.truncated, step.valid)
        return facts

    def blank(self) -> Tree:
        return self._space.zeros_with({"time": self._length, "batch": self._envs})

    def state(self) -> Tree:
        return {"returns": self._returns.state()}

    def restore(self, state: Tree) -> None:
        self._returns.restore(state["returns"])


class RolloutAccumulator(StepsAccumulator):
    """[T, B] arrays of every environment's next T steps."""

    def __init__(self, plan: Rollouts, spaces: StepSpaces, envs: int) -> None:
        StepsAccumulator.__init__(self, plan, spaces, envs)
        self._steps: list[dict[str, Tree]] = []

    @property
    def full(self) -> bool:
        return len(self._steps) == self._length

    def add(self, obs: Tree, acted: Acted, step: Step, bootstrap: np.ndarray | None) -> None:
        self._steps.append(self._facts(obs, acted, step, bootstrap))

    def take(self) -> Tree:
        steps, self._steps = self._steps, []
        along = self._space.spaces.keys() - set(TIMELESS)
        chunk = {name: _stack([step[name] for step in steps]) for name in along}
        chunk["mask"] = chunk["mask"].astype(np.float32)
        timeless = {"memory": steps[0]["memory"], "next_obs": steps[-1]["next_obs"]}
        return chunk | {name: timeless[name] for name in self._space.spaces.keys() - along}


class ColumnAccumulator(StepsAccumulator):
    """[T, B] arrays of the first B columns that are full, some of which may have been begun with older weights."""

    def __init__(self, plan: Rollouts, spaces: StepSpaces, envs: int) -> None:
        StepsAccumulator.__init__(self, plan, spaces, envs)
        self._columns, self._oldest = StepColumns(self._space, plan.length, envs), 0

    @property
    def full(self) -> bool:
        return len(self._columns) >= self._envs

    def add(self, obs: Tree, acted: Acted, step: Step, bootstrap: np.ndarray | None) -> None:
        self._columns.add(self._facts(obs, acted, step, bootstrap), step.valid)

    def take(self) -> Tree:
        chunk, self._oldest = self._columns.take(self._envs)
        return chunk

    def oldest(self, first: int) -> int:
        return self._oldest


def _stack(trees: list[Tree]) -> Tree:
    if isinstance(trees[0], np.ndarray):
        return np.array(trees)  # faster than np.stack for many small arrays
    return map_leaves(lambda *leaves: np.array(leaves), *trees)
