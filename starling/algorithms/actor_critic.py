"""What actor-critic algorithms share: a policy and a value that see through one encoder, with a memory if asked for,
and learn from rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from starling.algorithms.base import Choice
from starling.algorithms.gradient import GradientAlgorithm
from starling.algorithms.policies import clipped_to_bounds, policy_noise, require_flat
from starling.backends import ops
from starling.components.base import Component, api
from starling.components.networks.encoders import ACTION_MASK, Flatten, split_mask
from starling.components.networks.heads import ValueHead, policy_head_for
from starling.components.networks.normalisers import ObservationNormaliser, ReturnScale
from starling.components.networks.recurrent import memory_for
from starling.components.networks.whole import PolicyNetwork, ValueNetwork, seeing, torso_for
from starling.components.optimisers import Optimiser
from starling.core.params import Params
from starling.core.settings import Settings, setting
from starling.core.spaces import Dict, Float, Space
from starling.core.trees import Tree
from starling.experience.rollouts import Rollouts

__all__ = [
    "ActorCritic",
    "ActorCriticConfig",
    "first_steps",
    "masked_mean",
    "networks_for",
    "rewards_and_discounts",
    "standardised",
]


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig(Settings):
    """Settings that actor-critic algorithms share."""

    envs: int = setting(8, "environments that a batch comes from", 1, 65536)
    rollout: int = setting(256, "steps of each environment in a batch", 1, 1e6)
    learning_rate: float = setting(3e-4, "step size of the optimiser", 0, 10)
    anneal: bool = setting(False, "let the learning rate fall linearly to 0 over the run")
    gamma: float = setting(0.99, "discount of rewards, per step", 0, 1)
    value_weight: float = setting(0.5, "weight of the value loss", 0, 1e6)
    entropy_weight: float = setting(0.0, "weight of the entropy bonus", 0, 1e6)
    max_gradient: float = setting(0.5, "largest global norm of the gradients; 0 leaves them alone", 0, 1e9)
    normalise_observations: bool = setting(False, "subtract the running mean of observations and divide by deviation")
    normalise_rewards: bool = setting(False, "divide rewards by the running deviation of the discounted return")
    memory: Literal["none", "lstm", "gru"] = setting("none", "recurrent layer behind the encoder")
    memory_size: int = setting(64, "units of the recurrent layer", 1, 1e6)
    hidden: tuple[int, ...] = setting((64, 64), "sizes of the hidden layers of policy and value, each", 1, 1e6)
    activation: str = setting("tanh", "activation of the hidden layers")
    torso: Component | None = setting(None, "a component in place of hidden and activation")
    image: Component | None = setting(None, "a component in place of the network for images")


def networks_for(algo: str, config: ActorCriticConfig, obs: Space, action: Space) -> dict[str, Any]:
    """The fields of an ActorCritic that follow from spaces: one encoder, and a torso each for policy and value."""
    require_flat(algo, action)
    torso = torso_for(config.torso, config.hidden, config.activation, init="orthogonal:1.4142135")
    return {
        "observation_space": obs,
        "action_space": action,
        "config": config,
        "normaliser": ObservationNormaliser(obs) if config.normalise_observations else None,
        "return_scale": ReturnScale() if config.normalise_rewards else None,
        "encoder": seeing(obs, config.image),
        "core": memory_for(config.memory, config.memory_size),
        "policy": PolicyNetwork(Flatten(), torso, policy_head_for(action)),
        "value": ValueNetwork(Flatten(), torso, ValueHead()),
    }


def masked_mean(x: Any, mask: Any) -> Any:
    """The mean of ``x`` over the steps that are steps."""
    xp = ops(mask)
    return xp.sum(x * (mask / xp.maximum(xp.sum(mask), 1.0)))


def standardised(advantage: Any, mask: Any) -> Any:  # [*]
    """The advantages of a minibatch with mean 0 and deviation 1 over its valid steps."""
    centred = advantage - masked_mean(advantage, mask)
    return centred / (ops(advantage).sqrt(masked_mean(centred * centred, mask)) + 1e-8)


def rewards_and_discounts(batch: Tree, reward: Any, gamma: float) -> tuple[Any, Any]:
    """(r_t, discount_t) [T, B]: 0 is the discount wherever an episode ended; where it was cut, the value of what it
    ended with is part of the reward."""
    xp = ops(reward)
    goes_on = batch["mask"] * (1.0 - xp.astype(batch["terminated"] | batch["truncated"], xp.float32))
    return reward + gamma * batch["bootstrap"], gamma * goes_on


def first_steps(batch: Tree) -> Any:
    """[T+1, B]: where an episode begins after the first step, the observation behind the last one included."""
    xp = ops(batch["mask"])
    over = batch["terminated"] | batch["truncated"] | (batch["mask"] == 0.0)  # [T, B]
    return xp.concat([xp.zeros_like(over[:1, ...]), over], axis=0)


class ActorCritic(GradientAlgorithm):
    """See the top of this file."""

    config: Any
    optimisers: Mapping[str, Optimiser]
    normaliser: ObservationNormaliser | None
    return_scale: ReturnScale | None
    encoder: Component  # has parameters for images only
    core: Component | None  # what remembers, behind the encoder
    policy: PolicyNetwork
    value: ValueNetwork

    traced: ClassVar[tuple[str, ...]] = ("act", "greedy", "values", "learn")

    @property
    def plan(self) -> Rollouts:
        c = self.config
        return Rollouts(envs=c.envs, length=c.rollout, returns_gamma=c.gamma if c.normalise_rewards else None)

    @property
    def memory(self) -> Dict:
        return Dict() if self.core is None else self.core.memory

    @property
    def extras(self) -> Dict:
        return Dict(log_prob=Float())

    # -- acting, [B]

    @api
    def act(self, p: Params, obs: Any, memory: Tree, noise: Any, explore: Any) -> Choice:
        features, memory = self.step(p, obs, memory)
        action, log_prob = self.policy.distribution(p.policy, features).sample_with_log_prob(noise)
        return Choice(action, memory, {"log_prob": log_prob})

    @api
    def greedy(self, p: Params, obs: Any, memory: Tree) -> Choice:
        features, memory = self.step(p, obs, memory)
        return Choice(self.policy.distribution(p.policy, features).mode(), memory, {})

    @api
    def values(self, p: Params, obs: Any, memory: Tree) -> Any:  # [B]
        return self.value(p.value, self.step(p, obs, memory)[0])

    def step(self, p: Params, obs: Any, memory: Tree) -> tuple[Any, Tree]:
        """What policy and value see of one step, and the memory after it."""
        features, mask = self.features(p, obs)
        if self.core is not None:
            features, memory = self.core.step(p.core, features, memory)
        return self.masked(features, mask), memory

    # -- learning, [T, B]

    @api
    def features(self, p: Params, obs: Any) -> tuple[Any, Any]:  # [*, O] -> [*, F], and the mask of actions if any
        seen, mask = split_mask(obs if self.normaliser is None else self.normaliser(p.normaliser, obs))
        return self.encoder(p.encoder, seen), mask

    @api
    def along(self, p: Params, batch: Tree) -> tuple[Any, Any]:
        """The policy along a rollout [T, B], and the values, the last observation's included: [T+1, B]."""
        (features, mask), (last, last_mask) = self.features(p, batch["obs"]), self.features(p, batch["next_obs"])
        xp = ops(features)
        if self.core is not None:
            whole = xp.concat([features, last[None, ...]], axis=0)  # [T+1, B, F]
            whole, _ = self.core.unroll(p.core, whole, batch["memory"], first_steps(batch))
            features, last = whole[:-1, ...], whole[-1, ...]
        seen = self.masked(features, mask)
        v_tm1, v_last = self.value(p.value, seen), self.value(p.value, self.masked(last, last_mask))  # [T, B], [B]
        return self.policy.distribution(p.policy, seen), xp.concat([v_tm1, v_last[None, ...]], axis=0)

    @api
    def again(self, p: Params, batch: Tree) -> tuple[Any, Any]:
        """The policy and the values of steps [*] as they are now; with memory, of rollouts [T, B]."""
        features, mask = self.features(p, batch["obs"])
        if self.core is not None:
            features, _ = self.core.unroll(p.core, features, batch["memory"], batch["first"])
        seen = self.masked(features, mask)
        return self.policy.distribution(p.policy, seen), self.value(p.value, seen)

    def rewards(self, p: Params, batch: Tree) -> tuple[Any, Any]:
        """(r_t, discount_t) [T, B]; see ``rewards_and_discounts``."""
        reward = batch["reward"]
        if self.return_scale is not None:
            reward = self.return_scale(p.return_scale, reward)
        return rewards_and_discounts(batch, reward, self.config.gamma)

    @staticmethod
    def masked(features: Any, mask: Any) -> Any:
        """Features with the mask of possible actions beside them, where there is one."""
        return features if mask is None else {"observation": features, ACTION_MASK: mask}

    # -- randomness and bounds

    def act_noise(self, rng: np.random.Generator, lead: tuple[int, ...]) -> np.ndarray:
        return policy_noise(self.action_space, rng, lead)

    def to_env(self, action: np.ndarray) -> np.ndarray:
        return clipped_to_bounds(self.action_space, action)
