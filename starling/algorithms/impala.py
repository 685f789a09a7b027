"""IMPALA (Espeholt et al., 2018): an actor-critic that corrects for rollouts of older weights with V-trace.
Departs: RMSProp's ε of 1e-5, losses are means instead of sums, separate torsos for policy and value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from starling.algorithms.actor_critic import ActorCritic, masked_mean, networks_for
from starling.algorithms.base import check_range
from starling.backends import ops
from starling.components.base import api
from starling.components.optimisers import Adam, RMSProp
from starling.components.schedules import Linear
from starling.core.params import Params
from starling.core.spaces import Space
from starling.core.trees import Tree
from starling.maths.policy_gradients import policy_gradient_loss, value_loss
from starling.maths.vtrace import vtrace

__all__ = ["Impala", "ImpalaConfig"]


@dataclass(frozen=True, kw_only=True)
class ImpalaConfig:
    """Settings of IMPALA."""

    envs: int = 8  # environments stepped together
    rollout: int = 20  # steps of each environment per batch
    learning_rate: float = 1e-3
    anneal: bool = False  # let the learning rate fall linearly to 0
    adam: bool = True  # else RMSProp, as in the paper
    rms_decay: float = 0.99  # of RMSProp
    gamma: float = 0.99
    overlap: bool = False  # act with the weights from before the last update, so that acting and learning overlap
    vtrace: bool = True  # False takes every rollout for one of the newest weights
    vtrace_lambda: float = 1.0
    clip_rho: float = 1.0  # of the importance ratio, in values
    clip_c: float = 1.0  # of the importance ratio, along the trace
    clip_pg_rho: float = 1.0  # of the importance ratio, in the policy gradient
    value_weight: float = 0.5
    entropy_weight: float = 0.01
    max_gradient: float = 0.5  # global norm; 0 leaves gradients alone
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    torso: dict[str, Any] = field(default_factory=dict)  # a component spec; takes the place of hidden and activation
    image: dict[str, Any] = field(default_factory=dict)  # a component spec; takes the place of the network for images

    def __post_init__(self) -> None:
        check_range(self, envs=(1, 65536), rollout=(1, 1e6), gamma=(0, 1), vtrace_lambda=(0, 1), learning_rate=(0, 10))
        check_range(self, clip_rho=(0, 1e6), clip_c=(0, 1e6), clip_pg_rho=(0, 1e6), max_gradient=(0, 1e9))
        check_range(self, value_weight=(0, 1e6), entropy_weight=(0, 1e6), rms_decay=(0, 1), hidden=(1, 1e6))


def impala_loss(policy: Any, values: Any, batch: Tree, config: ImpalaConfig) -> tuple[Any, Tree]:
    """V-trace policy gradient + value loss − entropy bonus, over the valid steps; ``values`` is [T+1, B]."""
    xp, mask = ops(values), batch["mask"]  # [T, B]
    log_prob = policy.log_prob(batch["action"])  # [T, B]
    log_rho = log_prob - batch["log_prob"] if config.vtrace else xp.zeros_like(log_prob)
    corrected = vtrace(
        log_rho, batch["reward"], batch["discount"], values[:-1, ...], values[1:, ...],
        config.vtrace_lambda, config.clip_rho, config.clip_c, config.clip_pg_rho,
    )  # fmt: skip
    surrogate = masked_mean(policy_gradient_loss(log_prob, corrected.advantages), mask)
    value = masked_mean(value_loss(values[:-1, ...], corrected.targets), mask)
    entropy = masked_mean(policy.entropy(), mask)
    total = surrogate + config.value_weight * value - config.entropy_weight * entropy
    losses = {"total": total, "policy": surrogate, "value": value, "entropy": entropy}
    return total, {"loss": losses, "rho": masked_mean(xp.exp(xp.stop_gradient(log_rho)), mask)}


class Impala(ActorCritic):
    """Importance-weighted actor-learner, for discrete and continuous actions."""

    name: ClassVar[str] = "impala"
    Config: ClassVar[type] = ImpalaConfig

    @classmethod
    def compose(cls, config: ImpalaConfig, obs: Space, action: Space, envs: int, total_steps: int) -> Impala:
        end = 0.0 if config.anneal else config.learning_rate
        rate = Linear(config.learning_rate, end, max(1, total_steps // (envs * config.rollout)))
        clip = config.max_gradient
        optimiser = Adam(rate, clip=clip, eps=1e-5) if config.adam else RMSProp(rate, clip=clip, decay=config.rms_decay)
        return cls(envs=envs, optimiser=optimiser, **networks_for("impala", config, obs, action))

    @property
    def corrects(self) -> bool:
        return True

    @api
    def loss(self, p: Params, batch: Tree) -> tuple[Any, Tree]:
        return impala_loss(*self.along(p, batch), batch, self.config)

    def gradients(self, state: Tree, prepared: Tree, draws: Tree) -> tuple[Tree, Tree]:
        (_, metrics), gradients = ops(prepared["reward"]).value_and_grad(self.loss)(state["params"], prepared)
        return gradients, metrics
