"""PPO (Schulman et al., 2017). Departs: Adam ε of 1e-5, learning rate, clip range and entropy bonus fall linearly
if asked, advantages are standardised per minibatch, policy and value have separate torsos, orthogonal initialisation.
With ``vtrace`` it is APPO: values and advantages are corrected for rollouts of older weights (Espeholt et al., 2018).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from starling.algorithms.actor_critic import ActorCritic, masked_mean, networks_for
from starling.algorithms.base import check_range
from starling.backends import ops
from starling.components.base import api
from starling.components.optimisers import Adam
from starling.components.schedules import Linear
from starling.core.errors import ConfigError
from starling.core.params import Params
from starling.core.spaces import Space
from starling.core.trees import Tree, map_leaves
from starling.maths.policy_gradients import (
    approximate_kl,
    clipped_value_loss,
    ppo_clip_fraction,
    ppo_clip_loss,
    value_loss,
)
from starling.maths.returns import gae
from starling.maths.vtrace import vtrace

__all__ = ["PPO", "PPOConfig"]


@dataclass(frozen=True, kw_only=True)
class PPOConfig:
    """Settings of PPO."""

    envs: int = 8  # environments stepped together
    rollout: int = 256  # steps of each environment per batch
    epochs: int = 10  # passes over a batch
    minibatch: int = 256  # steps
    learning_rate: float = 3e-4
    anneal: bool = False  # let the learning rate fall linearly to 0
    anneal_clip: bool = False  # let the clip range fall linearly to 0
    anneal_entropy: bool = False  # let the entropy's weight fall linearly to 0
    gamma: float = 0.99
    gae_lambda: float = 0.95  # with vtrace, which cuts traces as well, nearer to 1
    clip: float = 0.2  # of the probability ratio
    clip_value: float = 0.0  # of the change of values; 0 leaves them alone
    value_weight: float = 0.5
    entropy_weight: float = 0.0
    max_gradient: float = 0.5  # global norm; 0 leaves gradients alone
    standardise: bool = True  # advantages, per minibatch
    overlap: bool = False  # act with the weights from before the last update, so that acting and learning overlap
    vtrace: bool = False  # correct for rollouts of older weights, as actors that run ahead send them
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    torso: dict[str, Any] = field(default_factory=dict)  # a component spec; takes the place of hidden and activation
    image: dict[str, Any] = field(default_factory=dict)  # a component spec; takes the place of the network for images

    def __post_init__(self) -> None:
        check_range(self, envs=(1, 65536), rollout=(1, 1e6), epochs=(1, 1000), gamma=(0, 1), gae_lambda=(0, 1))
        check_range(self, learning_rate=(0, 10), clip=(1e-6, 10), minibatch=(1, 1e9), hidden=(1, 1e6))
        check_range(self, clip_value=(0, 1e6), value_weight=(0, 1e6), entropy_weight=(0, 1e6), max_gradient=(0, 1e9))
        if (self.envs * self.rollout) % self.minibatch:
            steps = self.envs * self.rollout
            raise ConfigError(f"minibatch={self.minibatch} does not divide envs·rollout={steps}; try {steps // 4}.")


def ppo_loss(
    policy: Any, value: Any, minibatch: Tree, clip: Any, entropy_weight: Any, config: PPOConfig
) -> tuple[Any, Tree]:
    """Clipped surrogate + value loss − entropy bonus, over the valid steps of a minibatch."""

    def mean(x: Any) -> Any:
        return masked_mean(x, minibatch["mask"])

    log_prob = policy.log_prob(minibatch["action"])  # [B]
    surrogate = mean(ppo_clip_loss(log_prob, minibatch["log_prob"], minibatch["advantage"], clip))
    if config.clip_value:
        values = mean(clipped_value_loss(value, minibatch["value"], minibatch["return"], config.clip_value))
    else:
        values = mean(value_loss(value, minibatch["return"]))
    entropy = mean(policy.entropy())
    total = surrogate + config.value_weight * values - entropy_weight * entropy
    return total, {
        "loss": {"total": total, "policy": surrogate, "value": values, "entropy": entropy},
        "kl": mean(approximate_kl(log_prob, minibatch["log_prob"])),
        "clip_fraction": mean(ppo_clip_fraction(log_prob, minibatch["log_prob"], clip)),
    }


def standardised(advantage: Any, mask: Any) -> Any:  # [B]
    """The advantages of a minibatch with mean 0 and deviation 1 over its valid steps."""
    xp = ops(advantage)
    centred = advantage - masked_mean(advantage, mask)
    return centred / (xp.sqrt(masked_mean(xp.square(centred), mask)) + 1e-8)


class PPO(ActorCritic):
    """Proximal policy optimisation, for discrete and continuous actions."""

    clip: Linear
    entropy_weight: Linear

    name: ClassVar[str] = "ppo"
    Config: ClassVar[type] = PPOConfig
    shared: ClassVar[tuple[str, ...]] = ("envs", "minibatch")

    @classmethod
    def compose(cls, config: PPOConfig, obs: Space, action: Space, envs: int, total_steps: int) -> PPO:
        batches = max(1, total_steps // (envs * config.rollout))
        steps = batches * config.epochs * (envs * config.rollout // config.minibatch)

        def falling(value: float, falls: bool) -> Linear:
            return Linear(value, 0.0 if falls else value, steps)

        rate = falling(config.learning_rate, config.anneal)
        return cls(
            envs=envs,
            optimiser=Adam(rate, clip=config.max_gradient, eps=1e-5),
            clip=falling(config.clip, config.anneal_clip),
            entropy_weight=falling(config.entropy_weight, config.anneal_entropy),
            **networks_for("ppo", config, obs, action),
        )

    @property
    def corrects(self) -> bool:
        return bool(self.config.vtrace)

    @api
    def samples(self, p: Params, batch: Tree) -> Tree:
        """The batch as single steps [T·B] with advantages and returns."""
        xp = ops(batch["reward"])
        policy, values = self.along(p, batch)  # [T, B], [T+1, B]
        v_tm1, reward, discount = values[:-1, ...], batch["reward"], batch["discount"]  # [T, B]
        if self.config.vtrace:
            log_rho = policy.log_prob(batch["action"]) - batch["log_prob"]  # [T, B]
            corrected = vtrace(log_rho, reward, discount, v_tm1, values[1:, ...], self.config.gae_lambda)
            # The clipped ratio of the loss weighs by the policy's change already: q − v, without ρ.
            advantage, goal = corrected.q_estimates - v_tm1, corrected.targets
        else:
            advantage = gae(reward, discount, values, self.config.gae_lambda)
            goal = advantage + v_tm1
        steps = {key: batch[key] for key in ("obs", "action", "log_prob", "mask")}
        steps |= {"advantage": advantage, "return": goal, "value": v_tm1}
        return map_leaves(lambda x: xp.reshape(x, (-1, *x.shape[2:])), steps)

    @api
    def loss(self, p: Params, samples: Tree, count: Any) -> tuple[Any, Tree]:
        features = self.features(p, samples["obs"])
        policy, value = self.policy.distribution(p.policy, features), self.value(p.value, features)  # [B]
        return ppo_loss(policy, value, samples, self.clip(count), self.entropy_weight(count), self.config)

    def prepare(self, state: Tree, batch: Tree) -> Tree:
        return self.samples(state["params"], batch)

    def gradients(self, state: Tree, prepared: Tree, draws: Tree) -> tuple[Tree, Tree]:
        """Of one minibatch: the rows ``draws`` of the samples."""
        xp = ops(prepared["advantage"])
        minibatch = map_leaves(lambda x: xp.take(x, draws, axis=0), prepared)
        if self.config.standardise:  # before the loss, so that it is over all rows where devices share them
            minibatch["advantage"] = standardised(minibatch["advantage"], minibatch["mask"])
        (_, metrics), gradients = xp.value_and_grad(self.loss)(state["params"], minibatch, state["optimiser"]["count"])
        return gradients, metrics

    def update(self, state: Tree, batch: Tree, draws: Tree) -> tuple[Tree, Tree]:
        xp = ops(batch["reward"])
        samples = self.prepare(state, batch)

        def minibatch_step(state: Tree, rows: Any) -> tuple[Tree, Tree]:
            gradients, metrics = self.gradients(state, samples, rows)
            return self.apply_gradients(state, gradients), metrics

        state, metrics = xp.scan(minibatch_step, state, draws)
        return state, map_leaves(xp.mean, metrics)

    def draws(self, rng: np.random.Generator, rows: int) -> np.ndarray:
        """Row numbers of every minibatch: [epochs · minibatches, minibatch]."""
        order = rng.permuted(np.tile(np.arange(rows, dtype=np.int32), (self.config.epochs, 1)), axis=1)
        return order.reshape(-1, self.config.minibatch)

    def steps_of(self, draws: np.ndarray) -> list[np.ndarray]:
        return list(draws)
