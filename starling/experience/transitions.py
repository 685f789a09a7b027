"""n-step transitions in a table, drawn again and again."""

from __future__ import annotations

from dataclasses import dataclass

from starling.core.spaces import Dict, Float
from starling.data.adders.chunks import Chunk
from starling.data.adders.nstep import NStepAdder, transition_signature
from starling.data.adders.returns import ReturnsSoFar
from starling.experience.plan import StepSpaces
from starling.experience.replayed import Priorities, Replayed, RowAccumulator

__all__ = ["Transitions"]


@dataclass(frozen=True, kw_only=True)
class Transitions(Replayed):
    """Off-policy: from ``obs`` the ``action`` was taken, Σ γ^k r_k was earned over up to n steps, and ``next_obs``
    followed, whose value counts with ``discount``: 0 where the episode terminated, else γ^n or, at its end, less."""

    gamma: float
    n_step: int = 1
    returns: bool = False  # whether the discounted return so far is part of an item

    def signature(self, spaces: StepSpaces) -> Dict:
        returns = {"discounted_return": Float()} if self.returns else {}
        return transition_signature(spaces.obs, spaces.action, True, **spaces.extras.spaces, **returns)

    def accumulator(
        self, spaces: StepSpaces, envs: int, chunk: int, priorities: Priorities | None = None
    ) -> RowAccumulator:
        rows = Chunk(self.signature(spaces), (chunk + self.n_step - 1) * envs)
        adder = NStepAdder(rows, envs, self.n_step, self.gamma)
        returns = ReturnsSoFar(envs, self.gamma) if self.returns else None
        return RowAccumulator(adder, rows, chunk, priorities if self.prioritizes else None, returns)
