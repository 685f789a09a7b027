"""IMPALA (Espeholt et al., 2018): an actor-critic that corrects for rollouts of older weights with V-trace.
Departs: Adam by default; RMSProp's ε of 1e-5; losses are means instead of sums; separate torsos for policy and value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from starling.algorithms.actor_critic import ActorCritic, ActorCriticConfig, masked_mean, networks_for
from starling.algorithms.base import Learned
from starling.backends import ops
from starling.components.base import api
from starling.components.optimisers import Adam, RMSProp
from starling.components.schedules import annealed
from starling.core.params import Params
from starling.core.settings import setting
from starling.core.spaces import Space
from starling.core.trees import Tree
from starling.maths.policy_gradients import policy_gradient_loss, value_loss
from starling.maths.vtrace import vtrace

__all__ = ["Impala", "ImpalaConfig"]


@dataclass(frozen=True, kw_only=True)
class ImpalaConfig(ActorCriticConfig):
    """Settings of IMPALA."""

    rollout: int = setting(20, "steps of each environment in a batch", 1, 1e6)
    learning_rate: float = setting(1e-3, "step size of the optimiser", 0, 10)
    adam: bool = setting(True, "Adam; else RMSProp, as in the paper")
    rms_decay: float = setting(0.99, "decay of RMSProp's mean of squared gradients", 0, 1)
    vtrace: bool = setting(True, "correct for rollouts of older weights; else every rollout counts as the newest")
    vtrace_lambda: float = setting(1.0, "λ of V-trace: how far traces reach", 0, 1)
    clip_rho: float = setting(1.0, "largest importance ratio in V-trace's values", 0, 1e6)
    clip_c: float = setting(1.0, "largest importance ratio along V-trace's trace", 0, 1e6)
    clip_pg_rho: float = setting(1.0, "largest importance ratio in the policy gradient", 0, 1e6)
    entropy_weight: float = setting(0.01, "weight of the entropy bonus", 0, 1e6)


class Impala(ActorCritic):
    """Importance-weighted actor-learner, for discrete and continuous actions."""

    name: ClassVar[str] = "impala"
    Config: ClassVar[type] = ImpalaConfig

    @classmethod
    def compose(cls, config: ImpalaConfig, obs: Space, action: Space) -> Impala:
        rate = annealed(config.learning_rate, config.anneal)
        clip = config.max_gradient
        optimiser = Adam(rate, clip=clip, eps=1e-5) if config.adam else RMSProp(rate, clip=clip, decay=config.rms_decay)
        return cls(optimisers={"all": optimiser}, **networks_for("impala", config, obs, action))

    @property
    def corrects(self) -> bool:
        return bool(self.config.vtrace)

    @api
    def loss(self, p: Params, state: Tree, batch: Tree, draws: Tree) -> tuple[Any, Learned]:
        """V-trace policy gradient + value loss − entropy bonus, over the valid steps."""
        c, mask = self.config, batch["mask"]  # [T, B]
        policy, values = self.along(p, batch)  # [T, B], [T+1, B]
        r_t, discount_t = self.rewards(p, batch)  # [T, B]
        xp = ops(values)
        log_prob = policy.log_prob(batch["action"])  # [T, B]
        log_rho = log_prob - batch["log_prob"] if c.vtrace else xp.zeros_like(log_prob)
        corrected = vtrace(
            log_rho, r_t, discount_t, values[:-1, ...], values[1:, ...],
            c.vtrace_lambda, c.clip_rho, c.clip_c, c.clip_pg_rho,
        )  # fmt: skip
        surrogate = masked_mean(policy_gradient_loss(log_prob, corrected.advantages), mask)
        value = masked_mean(value_loss(values[:-1, ...], corrected.targets), mask)
        entropy = masked_mean(policy.entropy(), mask)
        total = surrogate + c.value_weight * value - c.entropy_weight * entropy
        losses = {"total": total, "policy": surrogate, "value": value, "entropy": entropy}
        return total, Learned({"loss": losses, "rho": masked_mean(xp.exp(xp.stop_gradient(log_rho)), mask)})
