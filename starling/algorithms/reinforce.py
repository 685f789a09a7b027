"""REINFORCE (Williams, 1992) with reward to go and a learned baseline. Departs: Adam; the baseline is a value network
with a torso of its own; advantages are standardised over the batch if asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from starling.algorithms.actor_critic import ActorCritic, ActorCriticConfig, masked_mean, networks_for, standardised
from starling.algorithms.base import Learned
from starling.components.base import api
from starling.components.optimisers import Adam
from starling.components.schedules import annealed
from starling.core.errors import ConfigError
from starling.core.params import Params
from starling.core.settings import setting
from starling.core.spaces import Space
from starling.core.trees import Tree
from starling.experience.episodes import Episodes
from starling.maths.policy_gradients import policy_gradient_loss, value_loss
from starling.maths.returns import discounted_returns

__all__ = ["Reinforce", "ReinforceConfig"]


@dataclass(frozen=True, kw_only=True)
class ReinforceConfig(ActorCriticConfig):
    """Settings of REINFORCE."""

    episodes: int = setting(16, "episodes in a batch", 1, 1e6)
    episode_length: int = setting(1_000, "steps of the longest episode", 1, 1e6)
    learning_rate: float = setting(3e-3, "step size of Adam", 0, 10)
    standardise: bool = setting(True, "standardise advantages over the batch")

    def check(self) -> None:
        if self.memory != "none" or self.normalise_rewards:
            raise ConfigError("memory and normalise_rewards have no effect in reinforce; try a2c.")


class Reinforce(ActorCritic):
    """Monte-Carlo policy gradient, for discrete and continuous actions."""

    name: ClassVar[str] = "reinforce"
    Config: ClassVar[type] = ReinforceConfig

    @classmethod
    def compose(cls, config: ReinforceConfig, obs: Space, action: Space) -> Reinforce:
        rate = annealed(config.learning_rate, config.anneal)
        optimiser = Adam(rate, clip=config.max_gradient)
        return cls(optimisers={"all": optimiser}, **networks_for("reinforce", config, obs, action))

    @property
    def plan(self) -> Episodes:  # type: ignore[override]
        c = self.config
        return Episodes(envs=c.envs, episodes=c.episodes, length=c.episode_length)

    def prepare(self, state: Tree, batch: Tree) -> Tree:
        """The batch with returns G_t and advantages G_t − v_t [T, B]; steps behind an episode's end earn nothing."""
        mask = batch["mask"]  # [T, B]
        returns = discounted_returns(batch["reward"] * mask, self.config.gamma)  # [T, B]
        advantage = returns - self.again(state["params"], batch)[1]  # [T, B]
        if self.config.standardise:  # before the loss, so that it is over all rows where devices share them
            advantage = standardised(advantage, mask)
        return {**batch, "return": returns, "advantage": advantage}

    @api
    def loss(self, p: Params, state: Tree, batch: Tree, draws: Tree) -> tuple[Any, Learned]:
        """−(G_t − v_t) · log π(a_t) + value loss − entropy bonus, over the steps of whole episodes [T, B]."""
        c, mask = self.config, batch["mask"]  # [T, B]
        policy, v_t = self.again(p, batch)  # [T, B]
        log_prob = policy.log_prob(batch["action"])  # [T, B]
        surrogate = masked_mean(policy_gradient_loss(log_prob, batch["advantage"]), mask)
        value = masked_mean(value_loss(v_t, batch["return"]), mask)
        entropy = masked_mean(policy.entropy(), mask)
        total = surrogate + c.value_weight * value - c.entropy_weight * entropy
        return total, Learned({"loss": {"total": total, "policy": surrogate, "value": value, "entropy": entropy}})
