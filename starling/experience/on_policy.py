"""What plans share that keep every step, [T, B], and learn from it once."""

from __future__ import annotations

from dataclasses import dataclass

from starling.core.trees import Tree
from starling.data.adders.columns import side_by_side
from starling.envs.protocol import Step
from starling.experience.cadence import EachBatch
from starling.experience.plan import Acted, Plan, StepSpaces, WholeFeed, equal_share

__all__ = ["OnPolicy", "facts_of"]


@dataclass(frozen=True, kw_only=True)
class OnPolicy(Plan):
    """A batch is the chunks of a round, side by side, and learned from once."""

    envs: int

    def envs_per_actor(self, chunks: int) -> int:
        return equal_share("envs", self.envs, chunks, f"the {chunks} chunks of a batch")

    def cadence(self, total: int, workers: int = 1) -> EachBatch:
        return EachBatch(total)

    def feed(self, spaces: StepSpaces, chunks: int, seed: int, index: int = 0) -> WholeFeed:
        return WholeFeed(chunks, side_by_side)


def facts_of(obs: Tree, acted: Acted, step: Step) -> dict[str, Tree]:
    """What is kept of a step of every environment, by the names of ``column_signature``."""
    return {
        "obs": obs,
        "action": acted.action,
        "reward": step.reward,
        "terminated": step.terminated,
        "truncated": step.truncated,
        "mask": step.valid,
        **acted.extras,
    }
