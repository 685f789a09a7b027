"""A2C, the synchronous form of A3C (Mnih et al., 2016). Departs: RMSProp's ε of 1e-5, GAE(λ) with λ = 1 by default
(the paper's n-step returns), separate torsos for policy and value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from starling.algorithms.actor_critic import ActorCritic, ActorCriticConfig, masked_mean, networks_for
from starling.algorithms.base import Learned
from starling.backends import ops
from starling.components.base import api
from starling.components.optimisers import RMSProp
from starling.components.schedules import annealed
from starling.core.params import Params
from starling.core.settings import setting
from starling.core.spaces import Space
from starling.core.trees import Tree
from starling.maths.policy_gradients import policy_gradient_loss, value_loss
from starling.maths.returns import gae

__all__ = ["A2C", "A2CConfig"]


@dataclass(frozen=True, kw_only=True)
class A2CConfig(ActorCriticConfig):
    """Settings of A2C."""

    rollout: int = setting(5, "steps of each environment in a batch", 1, 1e6)
    learning_rate: float = setting(7e-4, "step size of RMSProp", 0, 10)
    rms_decay: float = setting(0.99, "decay of RMSProp's mean of squared gradients", 0, 1)
    gae_lambda: float = setting(1.0, "λ of generalised advantage estimation; 1 is the n-step return", 0, 1)


class A2C(ActorCritic):
    """Advantage actor-critic, for discrete and continuous actions."""

    name: ClassVar[str] = "a2c"
    Config: ClassVar[type] = A2CConfig

    @classmethod
    def compose(cls, config: A2CConfig, obs: Space, action: Space) -> A2C:
        rate = annealed(config.learning_rate, config.anneal)
        optimiser = RMSProp(rate, clip=config.max_gradient, decay=config.rms_decay)
        return cls(optimisers={"all": optimiser}, **networks_for("a2c", config, obs, action))

    @api
    def loss(self, p: Params, state: Tree, batch: Tree, draws: Tree) -> tuple[Any, Learned]:
        """Policy gradient + value loss − entropy bonus, over the valid steps."""
        mask = batch["mask"]  # [T, B]
        policy, values = self.along(p, batch)  # [T, B], [T+1, B]
        r_t, discount_t = self.rewards(p, batch)  # [T, B]
        fixed = ops(values).stop_gradient(values)
        advantage = gae(r_t, discount_t, fixed, self.config.gae_lambda)  # [T, B]
        surrogate = masked_mean(policy_gradient_loss(policy.log_prob(batch["action"]), advantage), mask)
        value = masked_mean(value_loss(values[:-1, ...], advantage + fixed[:-1, ...]), mask)
        entropy = masked_mean(policy.entropy(), mask)
        total = surrogate + self.config.value_weight * value - self.config.entropy_weight * entropy
        return total, Learned({"loss": {"total": total, "policy": surrogate, "value": value, "entropy": entropy}})
