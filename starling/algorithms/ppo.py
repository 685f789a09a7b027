"""PPO (Schulman et al., 2017). Departs: Adam ε of 1e-5; learning rate, clip range and entropy bonus fall linearly
if asked; advantages are standardised per minibatch; policy and value have separate torsos; orthogonal initialisation.
With ``vtrace`` it is APPO: values and advantages are corrected for rollouts of older weights (Espeholt et al., 2018).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from starling.algorithms.actor_critic import (
    ActorCritic,
    ActorCriticConfig,
    first_steps,
    masked_mean,
    networks_for,
    standardised,
)
from starling.algorithms.base import Learned
from starling.backends import ops
from starling.components.base import api
from starling.components.optimisers import Adam
from starling.components.schedules import LinearSchedule
from starling.core.errors import ConfigError
from starling.core.params import Params
from starling.core.settings import setting
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
class PPOConfig(ActorCriticConfig):
    """Settings of PPO."""

    epochs: int = setting(10, "passes over a batch", 1, 1000)
    minibatch: int = setting(256, "steps that a gradient step learns from", 1, 1e9)
    anneal_clip: bool = setting(False, "let the clip range fall linearly to 0 over the run")
    anneal_entropy: bool = setting(False, "let the entropy's weight fall linearly to 0 over the run")
    gae_lambda: float = setting(0.95, "λ of generalised advantage estimation; with vtrace nearer to 1", 0, 1)
    clip: float = setting(0.2, "PPO's clip range of the probability ratio", 1e-6, 10)
    clip_value: float = setting(0.0, "clip range of the change of values; 0 leaves them alone", 0, 1e6)
    standardise: bool = setting(True, "standardise advantages per minibatch")
    vtrace: bool = setting(False, "correct for rollouts of older weights, as actors that run ahead send them")

    def check(self) -> None:
        steps = self.envs * self.rollout
        if steps % self.minibatch:
            raise ConfigError(f"minibatch={self.minibatch} does not divide envs·rollout={steps}; try {steps // 4}.")
        if self.memory != "none" and self.envs % self.parts:
            raise ConfigError(
                f"minibatch={self.minibatch}: with memory a minibatch holds whole rollouts of {self.rollout} steps, "
                f"and envs={self.envs} cannot be shared equally by {self.parts} minibatches; try {self.rollout}."
            )

    @property
    def parts(self) -> int:
        """Minibatches of a pass over a batch."""
        return self.envs * self.rollout // self.minibatch


class PPO(ActorCritic):
    """Proximal policy optimisation, for discrete and continuous actions."""

    clip: LinearSchedule
    entropy_weight: LinearSchedule

    name: ClassVar[str] = "ppo"
    Config: ClassVar[type] = PPOConfig
    many_steps: ClassVar[bool] = True

    @classmethod
    def compose(cls, config: PPOConfig, obs: Space, action: Space) -> PPO:
        def falling(value: float, falls: bool) -> LinearSchedule:
            return LinearSchedule(value, 0.0 if falls else value)

        return cls(
            optimisers={"all": Adam(falling(config.learning_rate, config.anneal), clip=config.max_gradient, eps=1e-5)},
            clip=falling(config.clip, config.anneal_clip),
            entropy_weight=falling(config.entropy_weight, config.anneal_entropy),
            **networks_for("ppo", config, obs, action),
        )

    @property
    def step_rows(self) -> int:
        return self.config.minibatch

    @property
    def corrects(self) -> bool:
        return bool(self.config.vtrace)

    def prepare(self, state: Tree, batch: Tree) -> Tree:
        """The batch with advantages and returns: as single steps [T·B], or with memory as rollouts [T, B]."""
        xp = ops(batch["reward"])
        r_t, discount_t = self.rewards(state["params"], batch)  # [T, B]
        policy, values = self.along(state["params"], batch)  # [T, B], [T+1, B]
        v_tm1 = values[:-1, ...]  # [T, B]
        if self.config.vtrace:
            log_rho = policy.log_prob(batch["action"]) - batch["log_prob"]  # [T, B]
            corrected = vtrace(log_rho, r_t, discount_t, v_tm1, values[1:, ...], self.config.gae_lambda)
            # The clipped ratio of the loss weighs by the policy's change already: q − v, without ρ.
            advantage, goal = corrected.q_estimates - v_tm1, corrected.targets
        else:
            advantage = gae(r_t, discount_t, values, self.config.gae_lambda)
            goal = advantage + v_tm1
        steps = {key: batch[key] for key in ("obs", "action", "log_prob", "mask")}
        steps |= {"advantage": advantage, "return": goal, "value": v_tm1}
        if self.core is None:
            return map_leaves(lambda x: xp.reshape(x, (-1, *x.shape[2:])), steps)
        return {**steps, "memory": batch["memory"], "first": first_steps(batch)[:-1, ...]}

    def minibatch(self, prepared: Tree, draws: Tree) -> Tree:
        """The rows ``draws`` of the samples; with memory, the rollouts of these environments."""
        xp = ops(prepared["advantage"])
        axis = 0 if self.core is None else 1
        along = {name: part for name, part in prepared.items() if name != "memory"}
        chosen = map_leaves(lambda x: xp.take(x, draws, axis=axis), along)
        if self.core is not None:
            chosen["memory"] = map_leaves(lambda x: xp.take(x, draws, axis=0), prepared["memory"])
        if self.config.standardise:  # here, since it takes the rows of all devices
            chosen["advantage"] = standardised(chosen["advantage"], chosen["mask"])
        return chosen

    @api
    def loss(self, p: Params, state: Tree, batch: Tree, draws: Tree) -> tuple[Any, Learned]:
        """Clipped surrogate + value loss − entropy bonus, over the valid steps of a minibatch [*]."""
        c, clip = self.config, self.clip(state["progress"])
        policy, value = self.again(p, batch)

        def mean(x: Any) -> Any:
            return masked_mean(x, batch["mask"])

        log_prob = policy.log_prob(batch["action"])  # [*]
        surrogate = mean(ppo_clip_loss(log_prob, batch["log_prob"], batch["advantage"], clip))
        if c.clip_value:
            values = mean(clipped_value_loss(value, batch["value"], batch["return"], c.clip_value))
        else:
            values = mean(value_loss(value, batch["return"]))
        entropy = mean(policy.entropy())
        total = surrogate + c.value_weight * values - self.entropy_weight(state["progress"]) * entropy
        return total, Learned(
            {
                "loss": {"total": total, "policy": surrogate, "value": values, "entropy": entropy},
                "kl": mean(approximate_kl(log_prob, batch["log_prob"])),
                "clip_fraction": mean(ppo_clip_fraction(log_prob, batch["log_prob"], clip)),
            }
        )

    def draws(self, rng: np.random.Generator, batch: Tree) -> np.ndarray:
        """Row numbers of every minibatch, or with memory numbers of environments: [epochs · minibatches, rows]."""
        steps, envs = batch["reward"].shape
        rows, parts = steps * envs if self.core is None else envs, self.config.parts
        each = max(1, rows // parts)
        order = rng.permuted(np.tile(np.arange(rows, dtype=np.int32), (self.config.epochs, 1)), axis=1)
        return order[:, : each * parts].reshape(-1, each)
