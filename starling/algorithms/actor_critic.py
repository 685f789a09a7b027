"""What actor-critic algorithms share: a policy and a value network that learn from rollouts with one optimiser."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from starling.algorithms.base import Algorithm
from starling.algorithms.plans import Rollouts
from starling.algorithms.policies import clipped_to_bounds, policy_noise, require_flat
from starling.backends import ops
from starling.components.base import api
from starling.components.encoders import encoder_for
from starling.components.heads import ValueHead, policy_head_for
from starling.components.networks import PolicyNetwork, ValueNetwork, torso_for
from starling.components.optimisers import Optimiser
from starling.core.params import Params
from starling.core.spaces import Dict, Float, Space
from starling.core.trees import Tree

__all__ = ["ActorCritic", "masked_mean", "networks_for"]


def networks_for(algo: str, config: Any, obs: Space, action: Space) -> dict[str, Any]:
    """The fields of an ActorCritic that follow from spaces: networks with torsos of their own."""
    require_flat(algo, action)
    torso = torso_for(config.torso, config.hidden, config.activation, init="orthogonal:1.4142135")
    return {
        "observation_space": obs,
        "action_space": action,
        "config": config,
        "policy": PolicyNetwork(encoder_for(obs), torso, policy_head_for(action)),
        "value": ValueNetwork(encoder_for(obs), torso, ValueHead()),
    }


def masked_mean(x: Any, mask: Any) -> Any:
    """The mean of ``x`` over the steps that are steps."""
    xp = ops(mask)
    return xp.sum(x * (mask / xp.maximum(xp.sum(mask), 1.0)))


class ActorCritic(Algorithm):
    """See the top of this file."""

    config: Any
    policy: PolicyNetwork
    value: ValueNetwork
    optimiser: Optimiser

    extras: ClassVar[Dict] = Dict(log_prob=Float())

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
    def path_values(self, p: Params, batch: Tree) -> Any:
        """The values along a rollout, the last observation's included: [T+1, B]."""
        v_tm1 = self.value(p.value, batch["obs"])  # [T, B]
        v_last = self.value(p.value, batch["next_obs"])  # [B]
        return ops(v_tm1).concat([v_tm1, v_last[None, ...]], axis=0)

    def apply_gradients(self, state: Tree, gradients: Tree) -> Tree:
        params, optimiser = self.optimiser.step(state["params"], gradients, state["optimiser"])
        return {"params": params, "optimiser": optimiser}

    def act_noise(self, rng: np.random.Generator, lead: tuple[int, ...]) -> np.ndarray:
        return policy_noise(self.action_space, rng, lead)

    def draws(self, rng: np.random.Generator, rows: int) -> Tree:
        return {}

    def to_env(self, action: np.ndarray) -> np.ndarray:
        return clipped_to_bounds(self.action_space, action)
