"""n-step transitions in a table, drawn again and again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from starling.core.spaces import Dict, Float
from starling.core.trees import Tree, items
from starling.data.adders.chunks import Chunk
from starling.data.adders.nstep import NStepAdder, transition_signature
from starling.envs.protocol import Step
from starling.experience.plan import Accumulator, Acted, Feed, ReturnsSoFar, StepSpaces
from starling.experience.replayed import Replayed

__all__ = ["Transitions"]

Priorities = Callable[[Tree], np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Transitions(Replayed):
    """Off-policy: from ``obs`` the ``action`` was taken, Σ γ^k r_k was earned over up to n steps, and ``next_obs``
    followed, whose value counts with ``discount``: 0 where the episode terminated, else γ^n or, at its end, less."""

    gamma: float
    n_step: int = 1
    returns: bool = False  # whether the discounted return so far is part of an item

    def batch_space(self, spaces: StepSpaces) -> Dict:
        """[B] everywhere; ``weight`` is the importance weight."""
        item = Dict({**self.signature(spaces).spaces, "weight": Float()}).spaces
        return Dict({name: space for name, space in item.items() if name != "version"}).ranked(batch=True)

    def signature(self, spaces: StepSpaces) -> Dict:
        """An item: the version of the weights that acted travels in each."""
        returns = {"discounted_return": Float()} if self.returns else {}
        return transition_signature(spaces.obs, spaces.action, True, **spaces.extras.spaces, **returns)

    def accumulator(self, spaces: StepSpaces, envs: int, chunk: int, priorities: Priorities | None = None) -> Any:
        return TransitionAccumulator(self, self.signature(spaces), envs, chunk, priorities)

    def feed(self, spaces: StepSpaces, chunks: int, seed: int, index: int = 0) -> Feed:
        from starling.experience.tables import TableFeed  # needs numba, which actors do without

        return TableFeed(self.signature(spaces), self.drawing, seed, index, chunks)


class TransitionAccumulator(Accumulator):
    """The transitions that ``length`` steps of every environment complete, as rows."""

    def __init__(
        self, plan: Transitions, signature: Dict, envs: int, length: int, priorities: Priorities | None
    ) -> None:
        self._plan, self._signature, self._envs, self._length = plan, signature, envs, length
        self._priorities = priorities if plan.prioritizes else None
        self._chunk = Chunk(signature, (length + plan.n_step - 1) * envs)
        self._adder = NStepAdder(self._chunk, envs, plan.n_step, plan.gamma)
        self._steps = 0
        self._returns = ReturnsSoFar(envs, plan.gamma)

    @property
    def full(self) -> bool:
        return self._steps >= self._length

    def add(self, obs: Tree, acted: Acted, step: Step, bootstrap: np.ndarray | None) -> None:
        self._adder.version = acted.version
        extras = acted.extras
        if self._plan.returns:
            extras = {**extras, "discounted_return": self._returns.after(step)}
        self._adder.add(
            obs,
            acted.action,
            extras,
            step.reward,
            step.terminated,
            step.truncated,
            step.obs,
            step.final_obs,
            step.valid,
        )
        self._steps += 1

    def take(self) -> Tree:
        rows, count = self._chunk.take()
        self._steps = 0
        if self._priorities is not None:
            rows["priority"] = self._first_priorities(rows, count)
        return {"rows": np.int64(count), "items": rows}

    def _first_priorities(self, rows: Tree, count: int) -> np.ndarray:
        """Of a chunk that is always of the same size, so that nothing is compiled anew: what is missing is zeros."""
        padded = self.blank()["items"]
        for (_, whole), (_, part) in zip(items({k: padded[k] for k in rows}), items(rows)):
            whole[:count] = part
        batch = {**padded, "weight": np.ones(len(padded["reward"]), np.float32)}
        del batch["version"], batch["priority"]
        assert self._priorities is not None
        return np.asarray(self._priorities(batch), np.float32)[:count]

    def blank(self) -> Tree:
        rows = (self._length + self._plan.n_step - 1) * self._envs
        blank: dict[str, Any] = self._signature.ranked(batch=True).zeros((rows,))
        if self._priorities is not None:
            blank["priority"] = np.zeros(rows, np.float32)
        return {"rows": np.int64(0), "items": blank}

    def state(self) -> Tree:
        return {"adder": self._adder.state(), "returns": self._returns.running.copy()}

    def restore(self, state: Tree) -> None:
        self._adder.restore(state["adder"])
        self._returns.running = np.array(state["returns"])
