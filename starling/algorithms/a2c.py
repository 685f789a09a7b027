"""A2C, the synchronous form of A3C (Mnih et al., 2016). Departs: RMSProp's ε of 1e-5, GAE(λ) with λ = 1 by default
(the paper's n-step returns), separate torsos for policy and value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from starling.algorithms.actor_critic import ActorCritic, masked_mean, networks_for
from starling.algorithms.base import check_range
from starling.backends import ops
from starling.components.base import api
from starling.components.optimisers import RMSProp
from starling.components.schedules import Linear
from starling.core.params import Params
from starling.core.spaces import Space
from starling.core.trees import Tree
from starling.maths.policy_gradients import policy_gradient_loss, value_loss
from starling.maths.returns import gae

__all__ = ["A2C", "A2CConfig"]


@dataclass(frozen=True, kw_only=True)
class A2CConfig:
    """Settings of A2C."""

    envs: int = 8  # environments stepped together
    rollout: int = 5  # steps of each environment per batch
    learning_rate: float = 7e-4
    anneal: bool = False  # let the learning rate fall linearly to 0
    gamma: float = 0.99
    gae_lambda: float = 1.0
    value_weight: float = 0.5
    entropy_weight: float = 0.0
    max_gradient: float = 0.5  # global norm; 0 leaves gradients alone
    rms_decay: float = 0.99
    overlap: bool = False  # act with the weights from before the last update, so that acting and learning overlap
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    torso: dict[str, Any] = field(default_factory=dict)  # a component spec; takes the place of hidden and activation
    image: dict[str, Any] = field(default_factory=dict)  # a component spec; takes the place of the network for images

    def __post_init__(self) -> None:
        check_range(self, envs=(1, 65536), rollout=(1, 1e6), gamma=(0, 1), gae_lambda=(0, 1), learning_rate=(0, 10))
        check_range(self, rms_decay=(0, 1), value_weight=(0, 1e6), entropy_weight=(0, 1e6))
        check_range(self, hidden=(1, 1e6), max_gradient=(0, 1e9))


def a2c_loss(policy: Any, values: Any, batch: Tree, config: A2CConfig) -> tuple[Any, Tree]:
    """Policy gradient + value loss − entropy bonus, over the valid steps; ``values`` is [T+1, B]."""
    mask = batch["mask"]  # [T, B]
    fixed = ops(values).stop_gradient(values)
    advantage = gae(batch["reward"], batch["discount"], fixed, config.gae_lambda)  # [T, B]
    surrogate = masked_mean(policy_gradient_loss(policy.log_prob(batch["action"]), advantage), mask)
    value = masked_mean(value_loss(values[:-1, ...], advantage + fixed[:-1, ...]), mask)
    entropy = masked_mean(policy.entropy(), mask)
    total = surrogate + config.value_weight * value - config.entropy_weight * entropy
    return total, {"loss": {"total": total, "policy": surrogate, "value": value, "entropy": entropy}}


class A2C(ActorCritic):
    """Advantage actor-critic, for discrete and continuous actions."""

    name: ClassVar[str] = "a2c"
    Config: ClassVar[type] = A2CConfig

    @classmethod
    def compose(cls, config: A2CConfig, obs: Space, action: Space, envs: int, total_steps: int) -> A2C:
        end = 0.0 if config.anneal else config.learning_rate
        rate = Linear(config.learning_rate, end, max(1, total_steps // (envs * config.rollout)))
        optimiser = RMSProp(rate, clip=config.max_gradient, decay=config.rms_decay)
        return cls(envs=envs, optimiser=optimiser, **networks_for("a2c", config, obs, action))

    @api
    def loss(self, p: Params, batch: Tree) -> tuple[Any, Tree]:
        return a2c_loss(*self.along(p, batch), batch, self.config)

    def gradients(self, state: Tree, prepared: Tree, draws: Tree) -> tuple[Tree, Tree]:
        (_, metrics), gradients = ops(prepared["reward"]).value_and_grad(self.loss)(state["params"], prepared)
        return gradients, metrics
