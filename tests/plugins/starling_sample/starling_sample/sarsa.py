"""Expected SARSA (van Seijen et al., 2009). Departs: a network for the table; learns from batches of recent steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from starling import Component, api
from starling.algorithms.base import Choice, Learned
from starling.algorithms.gradient import GradientAlgorithm
from starling.backends import ops
from starling.components.networks.encoders import split_mask
from starling.components.networks.heads import QHead
from starling.components.networks.whole import QNetwork, seeing, torso_for
from starling.components.optimisers import Adam
from starling.components.schedules import Constant
from starling.core.errors import SpaceError
from starling.core.params import Params
from starling.core.settings import Settings, setting
from starling.core.spaces import Int, Space
from starling.core.trees import Tree
from starling.experience import plan_like
from starling.experience.transitions import Transitions
from starling.maths.distributions import masked
from starling.maths.exploration import epsilon_greedy, epsilon_greedy_probs
from starling.maths.td import expected_sarsa_error

__all__ = ["Sarsa", "SarsaConfig"]


@dataclass(frozen=True, kw_only=True)
class SarsaConfig(Settings):
    """Settings of expected SARSA."""

    envs: int = setting(2, "environments stepped together", 1, 65536)
    learning_rate: float = setting(3e-3, "step size of Adam", 0, 10)
    gamma: float = setting(0.97, "discount of rewards, per step", 0, 1)
    epsilon: float = setting(0.2, "chance of a random action", 0, 1)
    batch_size: int = setting(16, "transitions that an update learns from", 1, 1e7)
    train_every: int = setting(4, "steps of the run between updates", 1, 1e9)
    plan: str = setting("sample_recent", "plan of what is kept and drawn; see `starling list`")
    hidden: tuple[int, ...] = setting((16,), "sizes of the hidden layers", 1, 1e6)
    torso: Component | None = setting(None, "a component in place of hidden")


class Sarsa(GradientAlgorithm):
    """Expected SARSA, for discrete actions."""

    config: SarsaConfig
    q: QNetwork
    optimisers: Mapping[str, Adam]
    normaliser: None
    return_scale: None

    name: ClassVar[str] = "sample_sarsa"
    Config: ClassVar[type] = SarsaConfig

    @classmethod
    def compose(cls, config: SarsaConfig, obs: Space, action: Space) -> Sarsa:
        if not isinstance(action, Int) or action.shape:
            raise SpaceError(f"sample_sarsa chooses one of several actions; the action space is {action}. Try ppo.")
        torso = torso_for(config.torso, config.hidden, "relu", init="lecun")
        return cls(
            observation_space=obs,
            action_space=action,
            config=config,
            q=QNetwork(seeing(obs, None), torso, QHead(action.categories)),
            optimisers={"q": Adam(Constant(config.learning_rate))},
            normaliser=None,
            return_scale=None,
        )

    @property
    def plan(self) -> Transitions:
        c = self.config
        return plan_like(Transitions, c.plan)(
            envs=c.envs, capacity=10_000, batch_size=c.batch_size, learning_starts=c.batch_size, every=c.train_every,
            gamma=c.gamma,
        )  # fmt: skip

    @api
    def act(self, p: Params, obs: Any, memory: Tree, noise: Any, explore: Any) -> Choice:
        q = self.q.q_values(p.q, obs)  # [B, A]
        return Choice(epsilon_greedy(q, explore, noise, split_mask(obs)[1]), memory, {})

    @api
    def greedy(self, p: Params, obs: Any, memory: Tree) -> Choice:
        q = masked(self.q.q_values(p.q, obs), split_mask(obs)[1])  # [B, A]
        return Choice(ops(q).astype(ops(q).argmax(q, axis=-1), ops(q).int32), memory, {})

    @api
    def loss(self, p: Params, state: Tree, batch: Tree, draws: Tree) -> tuple[Any, Learned]:
        """Mean of δ², where δ = r_t + discount_t · Σ_a π_t[a] q_t[a] − q_tm1[a_tm1]."""
        q_tm1 = self.q.q_values(p.q, batch["obs"])  # [B, A]
        q_t = self.q.q_values(p.q, batch["next_obs"])  # [B, A]
        pi_t = epsilon_greedy_probs(q_t, self.config.epsilon, split_mask(batch["next_obs"])[1])  # [B, A]
        error = expected_sarsa_error(q_tm1, batch["action"], batch["reward"], batch["discount"], q_t, pi_t)  # [B]
        loss = ops(error).mean(error * error)
        return loss, Learned({"loss": {"td": loss}, "q": ops(error).mean(q_tm1)})

    def act_noise(self, rng: np.random.Generator, lead: tuple[int, ...]) -> np.ndarray:
        return rng.random(lead, dtype=np.float32)

    def exploration(self, progress: float, rows: np.ndarray, total: int) -> Any:
        return self.config.epsilon
