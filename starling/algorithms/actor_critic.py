"""What actor-critic algorithms share: a policy and a value that see through one encoder and learn from rollouts."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from starling.algorithms.base import Algorithm
from starling.algorithms.plans import Rollouts
from starling.algorithms.policies import clipped_to_bounds, policy_noise, require_flat
from starling.backends import ops
from starling.components.base import Component, api
from starling.components.networks.encoders import ACTION_MASK, Flatten, split_mask
from starling.components.networks.heads import ValueHead, policy_head_for
from starling.components.networks.whole import PolicyNetwork, ValueNetwork, seeing, torso_for
from starling.components.optimisers import Optimiser
from starling.core.params import Params
from starling.core.spaces import Dict, Float, Space
from starling.core.trees import Tree

__all__ = ["ActorCritic", "masked_mean", "networks_for"]


def networks_for(algo: str, config: Any, obs: Space, action: Space) -> dict[str, Any]:
    """The fields of an ActorCritic that follow from spaces: one encoder, and a torso each for policy and value."""
    require_flat(algo, action)
    torso = torso_for(config.torso, config.hidden, config.activation, init="orthogonal:1.4142135")
    return {
        "observation_space": obs,
        "action_space": action,
        "config": config,
        "encoder": seeing(obs, config.image),
        "policy": PolicyNetwork(Flatten(), torso, policy_head_for(action)),
        "value": ValueNetwork(Flatten(), torso, ValueHead()),
    }


def masked_mean(x: Any, mask: Any) -> Any:
    """The mean of ``x`` over the steps that are steps."""
    xp = ops(mask)
    return xp.sum(x * (mask / xp.maximum(xp.sum(mask), 1.0)))


class ActorCritic(Algorithm):
    """See the top of this file."""

    config: Any
    encoder: Component  # has parameters for images only
    policy: PolicyNetwork
    value: ValueNetwork
    optimiser: Optimiser

    extras: ClassVar[Dict] = Dict(log_prob=Float())

    @property
    def plan(self) -> Rollouts:
        return Rollouts(length=self.config.rollout, gamma=self.config.gamma, overlap=self.config.overlap)

    def init(self, params: Params) -> Tree:
        return {"params": params, "optimiser": self.optimiser.init(params)}

    @api
    def features(self, p: Params, obs: Any) -> Any:  # [*, O] -> [*, F], with the mask of actions if there is one
        seen, mask = split_mask(obs)
        features = self.encoder(p.encoder, seen)
        return features if mask is None else {"observation": features, ACTION_MASK: mask}

    @api
    def act(self, p: Params, obs: Any, noise: Any, explore: Any) -> dict[str, Any]:
        action, log_prob = self.policy.distribution(p.policy, self.features(p, obs)).sample_with_log_prob(noise)
        return {"action": action, "log_prob": log_prob}

    @api
    def greedy(self, p: Params, obs: Any) -> Any:
        return self.policy.distribution(p.policy, self.features(p, obs)).mode()

    @api
    def values(self, p: Params, obs: Any) -> Any:
        return self.value(p.value, self.features(p, obs))

    @api
    def along(self, p: Params, batch: Tree) -> tuple[Any, Any]:
        """The policy along a rollout [T, B], and the values, the last observation's included: [T+1, B]."""
        features = self.features(p, batch["obs"])
        v_tm1, v_last = self.value(p.value, features), self.values(p, batch["next_obs"])  # [T, B], [B]
        values = ops(v_tm1).concat([v_tm1, v_last[None, ...]], axis=0)
        return self.policy.distribution(p.policy, features), values

    def apply_gradients(self, state: Tree, gradients: Tree) -> Tree:
        params, optimiser = self.optimiser.step(state["params"], gradients, state["optimiser"])
        return {"params": params, "optimiser": optimiser}

    def act_noise(self, rng: np.random.Generator, lead: tuple[int, ...]) -> np.ndarray:
        return policy_noise(self.action_space, rng, lead)

    def draws(self, rng: np.random.Generator, rows: int) -> Tree:
        return {}

    def to_env(self, action: np.ndarray) -> np.ndarray:
        return clipped_to_bounds(self.action_space, action)
