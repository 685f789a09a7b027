"""Evolution strategies (Salimans et al., 2017): mirrored perturbations, centred ranks, Adam.
Departs: no virtual batch normalisation; each evaluation is the mean of an episode of every environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from starling.algorithms.base import Algorithm, Choice, Learned
from starling.algorithms.policies import clipped_to_bounds, require_flat
from starling.backends import ops
from starling.components.base import Component, api
from starling.components.graph.assembly import assemble
from starling.components.networks.heads import policy_head_for
from starling.components.networks.whole import PolicyNetwork, seeing, torso_for
from starling.components.optimisers import Adam
from starling.components.schedules import annealed
from starling.core.params import Params
from starling.core.settings import Settings, setting
from starling.core.spaces import Space
from starling.core.trees import Tree, leaves, refilled
from starling.experience.evaluations import Evaluations, perturbation

__all__ = ["ES", "ESConfig"]


@dataclass(frozen=True, kw_only=True)
class ESConfig(Settings):
    """Settings of evolution strategies."""

    envs: int = setting(1, "environments that play with the same parameters; their returns are averaged", 1, 65536)
    population: int = setting(64, "evaluations in a batch, in pairs", 2, 1e6)
    sigma: float = setting(0.05, "size of perturbations", 1e-6, 10)
    learning_rate: float = setting(0.02, "step size of Adam", 0, 10)
    anneal: bool = setting(False, "let the learning rate fall linearly to 0 over the run")
    weight_decay: float = setting(0.005, "share of the parameters taken off at each step, by the learning rate", 0, 1)
    hidden: tuple[int, ...] = setting((32,), "sizes of the hidden layers", 1, 1e6)
    activation: str = setting("tanh", "activation of the hidden layers")
    torso: Component | None = setting(None, "a component in place of hidden and activation")
    image: Component | None = setting(None, "a component in place of the network for images")


class ES(Algorithm):
    """Evolution strategies, for discrete and continuous actions; acts greedily and follows no gradient."""

    config: ESConfig
    policy: PolicyNetwork
    optimiser: Adam

    name: ClassVar[str] = "es"
    Config: ClassVar[type] = ESConfig

    @classmethod
    def compose(cls, config: ESConfig, obs: Space, action: Space) -> ES:
        require_flat("es", action)
        torso = torso_for(config.torso, config.hidden, config.activation, init="lecun")
        rate = annealed(config.learning_rate, config.anneal)
        return cls(
            observation_space=obs,
            action_space=action,
            config=config,
            policy=PolicyNetwork(seeing(obs, config.image), torso, policy_head_for(action)),
            optimiser=Adam(rate, weight_decay=config.weight_decay),
        )

    @property
    def plan(self) -> Evaluations:
        return Evaluations(envs=self.config.envs, population=self.config.population, sigma=self.config.sigma)

    @api
    def act(self, p: Params, obs: Any, memory: Tree, noise: Any, explore: Any) -> Choice:
        return Choice(self.policy.distribution(p.policy, obs).mode(), memory, {})

    @api
    def greedy(self, p: Params, obs: Any, memory: Tree) -> Choice:
        return Choice(self.policy.distribution(p.policy, obs).mode(), memory, {})

    def init(self, params: Params) -> Tree:
        xp = ops(leaves(params)[0])
        return {"params": params, "optimiser": self.optimiser.init(params), "progress": xp.zeros((), dtype=xp.float32)}

    def update(self, state: Tree, batch: Tree, draws: Tree) -> tuple[Tree, Learned]:
        """A step along Σ u_i · sign_i · ε_i / (N σ), with centred ranks u_i for returns."""
        xp = ops(batch["earned"])
        shaped = centred_ranks(batch["earned"]) * batch["sign"]  # [N]
        ascent = shaped @ draws / (self.config.population * self.config.sigma)  # [N], [N, P] -> [P]
        parts, start = [], 0
        for leaf in leaves(state["params"]):
            size = int(np.prod(leaf.shape))
            parts.append(xp.reshape(-ascent[start : start + size], leaf.shape))
            start += size
        gradients = refilled(state["params"], parts)
        params, optimiser = self.optimiser.step(state["params"], gradients, state["optimiser"], state["progress"])
        earned = {"mean": xp.mean(batch["earned"]), "best": xp.max(batch["earned"])}
        metrics = {"earned": earned, "ascent": xp.sqrt(xp.sum(ascent * ascent))}
        return {**state, "params": params, "optimiser": optimiser}, Learned(metrics)

    def act_noise(self, rng: np.random.Generator, lead: tuple[int, ...]) -> np.ndarray:
        return np.zeros(lead, np.float32)  # nothing is drawn when acting: parameters explore

    def draws(self, rng: np.random.Generator, batch: Tree) -> np.ndarray:
        """The perturbations that the batch's seeds stand for, [N, P]."""
        size = self._parameters
        found: dict[int, np.ndarray] = {}
        for seed in batch["seed"].tolist():
            if seed not in found:
                found[seed] = perturbation(seed, size)
        return np.stack([found[seed] for seed in batch["seed"].tolist()])

    @cached_property
    def _parameters(self) -> int:
        """How many there are."""
        obs = {"obs": self.observation_space.ranked(batch=True), "memory": self.memory}
        return assemble(self, obs, ("greedy",)).parameter_count

    def to_env(self, action: np.ndarray) -> np.ndarray:
        return clipped_to_bounds(self.action_space, action)


def centred_ranks(returns: Any) -> Any:
    """From −½ for the lowest to ½ for the highest, [N]; equal returns get the mean of their ranks."""
    xp = ops(returns)
    below = xp.sum(xp.astype(returns[None, :] < returns[:, None], xp.float32), axis=1)  # [N]
    equal = xp.sum(xp.astype(returns[None, :] == returns[:, None], xp.float32), axis=1)
    return (below + 0.5 * (equal - 1.0)) / max(1, returns.shape[0] - 1) - 0.5
