"""Behaviour cloning (Pomerleau, 1988): the policy that most likely did what a data set shows. Departs: Adam."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from starling.algorithms.base import Choice, Learned
from starling.algorithms.gradient import GradientAlgorithm
from starling.algorithms.policies import clipped_to_bounds, policy_noise, require_flat
from starling.backends import ops
from starling.components.base import Component, api
from starling.components.networks.heads import policy_head_for
from starling.components.networks.normalisers import ObservationNormaliser, ReturnScale
from starling.components.networks.whole import PolicyNetwork, seeing, torso_for
from starling.components.optimisers import Adam
from starling.components.schedules import annealed
from starling.core.params import Params
from starling.core.settings import Settings, setting
from starling.core.spaces import Space
from starling.core.trees import Tree
from starling.experience.demonstrations import DataSet

__all__ = ["BC", "BCConfig"]


@dataclass(frozen=True, kw_only=True)
class BCConfig(Settings):
    """Settings of behaviour cloning."""

    data: str = setting("", "directory of the data set of episodes to learn from")
    batch_size: int = setting(256, "steps that an update learns from", 1, 1e7)
    learning_rate: float = setting(1e-3, "step size of Adam", 0, 10)
    anneal: bool = setting(False, "let the learning rate fall linearly to 0 over the run")
    weight_decay: float = setting(0.0, "share of the parameters taken off at each step, by the learning rate", 0, 1)
    normalise_observations: bool = setting(False, "subtract the running mean of observations and divide by deviation")
    hidden: tuple[int, ...] = setting((64, 64), "sizes of the hidden layers", 1, 1e6)
    activation: str = setting("tanh", "activation of the hidden layers")
    torso: Component | None = setting(None, "a component in place of hidden and activation")
    image: Component | None = setting(None, "a component in place of the network for images")

    envs: ClassVar[int] = 1  # nobody acts


class BC(GradientAlgorithm):
    """Behaviour cloning, for discrete and continuous actions; learns from a data set, and nobody acts."""

    config: BCConfig
    policy: PolicyNetwork
    optimisers: Mapping[str, Adam]
    normaliser: ObservationNormaliser | None
    return_scale: ReturnScale | None

    name: ClassVar[str] = "bc"
    Config: ClassVar[type] = BCConfig

    @classmethod
    def compose(cls, config: BCConfig, obs: Space, action: Space) -> BC:
        require_flat("bc", action)
        torso = torso_for(config.torso, config.hidden, config.activation, init="orthogonal:1.4142135")
        rate = annealed(config.learning_rate, config.anneal)
        return cls(
            observation_space=obs,
            action_space=action,
            config=config,
            policy=PolicyNetwork(seeing(obs, config.image), torso, policy_head_for(action)),
            optimisers={"policy": Adam(rate, weight_decay=config.weight_decay)},
            normaliser=ObservationNormaliser(obs) if config.normalise_observations else None,
            return_scale=None,
        )

    @property
    def plan(self) -> DataSet:
        return DataSet(path=self.config.data, batch_size=self.config.batch_size)

    def policy_of(self, p: Params, obs: Any) -> Any:
        return self.policy.distribution(
            p.policy, obs if self.normaliser is None else self.normaliser(p.normaliser, obs)
        )

    @api
    def act(self, p: Params, obs: Any, memory: Tree, noise: Any, explore: Any) -> Choice:
        return Choice(self.policy_of(p, obs).sample(noise), memory, {})

    @api
    def greedy(self, p: Params, obs: Any, memory: Tree) -> Choice:
        return Choice(self.policy_of(p, obs).mode(), memory, {})

    @api
    def loss(self, p: Params, state: Tree, batch: Tree, draws: Tree) -> tuple[Any, Learned]:
        """−log π(a | o), the mean over a batch."""
        policy = self.policy_of(p, batch["obs"])
        xp = ops(batch["reward"])
        surprise = -xp.mean(policy.log_prob(batch["action"]))
        return surprise, Learned({"loss": {"clone": surprise}, "entropy": xp.mean(policy.entropy())})

    def act_noise(self, rng: np.random.Generator, lead: tuple[int, ...]) -> np.ndarray:
        return policy_noise(self.action_space, rng, lead)

    def to_env(self, action: np.ndarray) -> np.ndarray:
        return clipped_to_bounds(self.action_space, action)
