"""A2C, the synchronous form of A3C (Mnih et al., 2016). Departs: RMSProp's ε of 1e-5, GAE(λ) with λ = 1 by default
(the paper's n-step returns), separate torsos for policy and value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from starling.algorithms.base import Algorithm, check_range, one_step
from starling.algorithms.plans import Rollouts
from starling.algorithms.policies import clipped_to_bounds, policy_noise, require_flat
from starling.backends import ops
from starling.components.base import api
from starling.components.encoders import encoder_for
from starling.components.heads import ValueHead, policy_head_for
from starling.components.networks import PolicyNetwork, ValueNetwork, torso_for
from starling.components.optimisers import Optimiser, RMSProp
from starling.components.schedules import Linear
from starling.core.params import Params
from starling.core.spaces import Dict, Float, Space
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
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    torso: dict[str, Any] = field(default_factory=dict)  # a component spec; takes the place of hidden and activation

    def __post_init__(self) -> None:
        check_range(self, envs=(1, 65536), rollout=(1, 1e6), gamma=(0, 1), gae_lambda=(0, 1), learning_rate=(0, 10))
        check_range(self, rms_decay=(0, 1), value_weight=(0, 1e6), entropy_weight=(0, 1e6))
        check_range(self, hidden=(1, 1e6), max_gradient=(0, 1e9))


def a2c_loss(policy: Any, values: Any, batch: Tree, config: A2CConfig) -> tuple[Any, Tree]:
    """Policy gradient + value loss − entropy bonus, over the valid steps; ``values`` is [T+1, B]."""
    xp = ops(values)
    weight = batch["mask"] / xp.maximum(xp.sum(batch["mask"]), 1.0)  # [T, B]

    def mean(x: Any) -> Any:
        return xp.sum(x * weight)

    fixed = xp.stop_gradient(values)
    advantage = gae(batch["reward"], batch["discount"], fixed, config.gae_lambda)  # [T, B]
    surrogate = mean(policy_gradient_loss(policy.log_prob(batch["action"]), advantage))
    value = mean(value_loss(values[:-1, ...], advantage + fixed[:-1, ...]))
    entropy = mean(policy.entropy())
    total = surrogate + config.value_weight * value - config.entropy_weight * entropy
    return total, {"loss": {"total": total, "policy": surrogate, "value": value, "entropy": entropy}}


class A2C(Algorithm):
    """Advantage actor-critic, for discrete and continuous actions."""

    config: A2CConfig
    policy: PolicyNetwork
    value: ValueNetwork
    optimiser: Optimiser

    name: ClassVar[str] = "a2c"
    Config: ClassVar[type] = A2CConfig
    extras: ClassVar[Dict] = Dict(log_prob=Float())

    @classmethod
    def compose(cls, config: A2CConfig, obs: Space, action: Space, envs: int, total_steps: int) -> A2C:
        require_flat("a2c", action)
        torso = torso_for(config.torso, config.hidden, config.activation, init="orthogonal:1.4142135")
        end = 0.0 if config.anneal else config.learning_rate
        rate = Linear(config.learning_rate, end, max(1, total_steps // (envs * config.rollout)))
        return cls(
            observation_space=obs,
            action_space=action,
            envs=envs,
            config=config,
            policy=PolicyNetwork(encoder_for(obs), torso, policy_head_for(action)),
            value=ValueNetwork(encoder_for(obs), torso, ValueHead()),
            optimiser=RMSProp(rate, clip=config.max_gradient, decay=config.rms_decay),
        )

    @property
    def plan(self) -> Rollouts:
        return Rollouts(length=self.config.rollout, gamma=self.config.gamma)

    def init(self, params: Params) -> Tree:
        return {"params": params, "optimiser": self.optimiser.init(params)}

    @api
    def act(self, p: Params, obs: Any, noise: Any, explore: Any) -> dict[str, Any]:
        action, log_prob = self.policy.distribution(p.policy, obs).sample_with_log_prob(noise)
        return {"action": action, "log_prob": log_prob}

    @api
    def greedy(self, p: Params, obs: Any) -> Any:
        return self.policy.distribution(p.policy, obs).mode()

    @api
    def values(self, p: Params, obs: Any) -> Any:
        return self.value(p.value, obs)

    @api
    def loss(self, p: Params, batch: Tree) -> tuple[Any, Tree]:
        v_tm1 = self.value(p.value, batch["obs"])  # [T, B]
        v_last = self.value(p.value, batch["next_obs"])  # [B]
        values = ops(v_tm1).concat([v_tm1, v_last[None, ...]], axis=0)  # [T+1, B]
        return a2c_loss(self.policy.distribution(p.policy, batch["obs"]), values, batch, self.config)

    def gradients(self, state: Tree, batch: Tree, draws: Tree) -> tuple[Tree, Tree]:
        (_, metrics), gradients = ops(batch["reward"]).value_and_grad(self.loss)(state["params"], batch)
        return gradients, metrics

    def apply_gradients(self, state: Tree, gradients: Tree) -> Tree:
        params, optimiser = self.optimiser.step(state["params"], gradients, state["optimiser"])
        return {"params": params, "optimiser": optimiser}

    def update(self, state: Tree, batch: Tree, draws: Tree) -> tuple[Tree, Tree]:
        return one_step(self, state, batch, draws)

    def act_noise(self, rng: np.random.Generator, lead: tuple[int, ...]) -> np.ndarray:
        return policy_noise(self.action_space, rng, lead)

    def draws(self, rng: np.random.Generator, rows: int) -> Tree:
        return {}

    def to_env(self, action: np.ndarray) -> np.ndarray:
        return clipped_to_bounds(self.action_space, action)
