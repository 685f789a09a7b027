"""DQN (Mnih et al., 2015), double (van Hasselt et al., 2016), dueling (Wang et al., 2016), n-step,
prioritized replay (Schaul et al., 2016) and Ape-X's ladder of ε (Horgan et al., 2018).
Departs: Adam for RMSProp; double by default; Huber loss of the error instead of its clipped gradient (the same slope).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from starling.algorithms.base import Algorithm, check_range
from starling.algorithms.plans import Replay
from starling.backends import ops
from starling.components.base import api
from starling.components.networks.encoders import split_mask
from starling.components.networks.heads import DuelingHead, QHead
from starling.components.networks.whole import QNetwork, seeing, torso_for
from starling.components.optimisers import Adam, Optimiser
from starling.components.schedules import Linear
from starling.components.targets import periodic
from starling.core.errors import SpaceError
from starling.core.params import Params
from starling.core.spaces import Int, Space
from starling.core.trees import Tree, map_leaves
from starling.maths.distributions import masked
from starling.maths.exploration import epsilon_greedy
from starling.maths.td import double_q_error, huber, q_learning_error

__all__ = ["DQN", "DQNConfig"]

LADDER_BASE, LADDER_SLOPE = 0.4, 7.0  # actor i of N explores with base^(1 + slope · i / (N − 1))


@dataclass(frozen=True, kw_only=True)
class DQNConfig:
    """Settings of DQN."""

    envs: int = 1  # environments stepped together
    learning_rate: float = 1e-3
    anneal: bool = False  # let the learning rate fall linearly to 0
    gamma: float = 0.99
    n_step: int = 1
    double: bool = True
    dueling: bool = False
    capacity: int = 100_000  # transitions kept
    alpha: float = 0.0  # exponent of priorities; 0 draws uniformly
    beta: float = 0.4  # exponent of importance weights
    batch_size: int = 64
    learning_starts: int = 1_000  # transitions before the first update
    train_every: int = 4  # environment steps between rounds of updates
    updates: int = 1  # updates in a round
    overlap: bool = False  # act with the weights from before the last round, so that acting and learning overlap
    target_period: int = 250  # updates between copies to the target network
    epsilon_start: float = 1.0
    epsilon_end: float = 0.05
    epsilon_fraction: float = 0.1  # of the run over which epsilon falls
    max_gradient: float = 10.0  # global norm; 0 leaves gradients alone
    hidden: tuple[int, ...] = (256, 256)
    activation: str = "relu"
    torso: dict[str, Any] = field(default_factory=dict)  # a component spec; takes the place of hidden and activation
    image: dict[str, Any] = field(default_factory=dict)  # a component spec; takes the place of the network for images

    def __post_init__(self) -> None:
        check_range(self, envs=(1, 65536), learning_rate=(0, 10), gamma=(0, 1), n_step=(1, 1000), train_every=(1, 1e9))
        check_range(self, epsilon_start=(0, 1), epsilon_end=(0, 1), epsilon_fraction=(0, 1), target_period=(1, 1e9))
        check_range(self, capacity=(1, 1e10), batch_size=(1, 1e7), updates=(1, 1e6), learning_starts=(0, 1e10))
        check_range(self, max_gradient=(0, 1e9), hidden=(1, 1e6), alpha=(0, 10), beta=(0, 1))


def dqn_loss(q_tm1: Any, q_t: Any, q_t_selector: Any | None, batch: Tree) -> tuple[Any, Tree]:
    """Mean Huber loss of the TD error, by importance weight; with a selector, double Q-learning."""
    xp = ops(q_tm1)
    error = td_error(q_tm1, q_t, q_t_selector, batch)  # [B]
    loss = xp.mean(batch["weight"] * huber(error))
    size = xp.abs(error)
    return loss, {"loss": {"td": loss}, "q": xp.mean(q_tm1), "td_error": xp.mean(size), "priorities": size}


def td_error(q_tm1: Any, q_t: Any, q_t_selector: Any | None, batch: Tree) -> Any:  # [B]
    step = (batch["action"], batch["reward"], batch["discount"])
    if q_t_selector is None:
        return q_learning_error(q_tm1, *step, q_t)
    return double_q_error(q_tm1, *step, q_t, q_t_selector)


class DQN(Algorithm):
    """Deep Q-network, for discrete actions."""

    config: DQNConfig
    q: QNetwork
    optimiser: Optimiser
    epsilon: Linear

    name: ClassVar[str] = "dqn"
    prioritizes: ClassVar[bool] = True
    Config: ClassVar[type] = DQNConfig
    shared: ClassVar[tuple[str, ...]] = ("batch_size",)
    pace_settings: ClassVar[tuple[str, ...]] = ("train_every", "updates")
    exploration_settings: ClassVar[tuple[str, ...]] = ("epsilon_start", "epsilon_end", "epsilon_fraction")

    @classmethod
    def compose(cls, config: DQNConfig, obs: Space, action: Space, envs: int, total_steps: int) -> DQN:
        if not isinstance(action, Int) or action.shape:
            raise SpaceError(f"dqn chooses one of several actions; the action space is {action}. Try ppo or sac.")
        torso = torso_for(config.torso, config.hidden, config.activation, init="lecun")
        head = DuelingHead(action.categories) if config.dueling else QHead(action.categories)
        falling = max(1.0, config.epsilon_fraction * total_steps)
        rounds = max(1, (total_steps - config.learning_starts) // config.train_every)
        end = 0.0 if config.anneal else config.learning_rate
        return cls(
            observation_space=obs,
            action_space=action,
            envs=envs,
            config=config,
            q=QNetwork(seeing(obs, config.image), torso, head),
            optimiser=Adam(Linear(config.learning_rate, end, rounds * config.updates), clip=config.max_gradient),
            epsilon=Linear(config.epsilon_start, config.epsilon_end, falling),
        )

    @property
    def plan(self) -> Replay:
        c = self.config
        return Replay(
            capacity=c.capacity, batch_size=c.batch_size, min_size=max(c.learning_starts, c.batch_size), gamma=c.gamma,
            n_step=c.n_step, every=c.train_every, updates=c.updates,
            overlap=c.overlap, alpha=c.alpha, beta=c.beta,
        )  # fmt: skip

    def init(self, params: Params) -> Tree:
        target = map_leaves(lambda leaf: leaf + 0, params)  # a copy: both may be donated
        return {"params": params, "target": target, "optimiser": self.optimiser.init(params)}

    @api
    def act(self, p: Params, obs: Any, noise: Any, explore: Any) -> dict[str, Any]:
        return {"action": epsilon_greedy(self.q.q_values(p.q, obs), explore, noise, split_mask(obs)[1])}

    @api
    def greedy(self, p: Params, obs: Any) -> Any:
        q = masked(self.q.q_values(p.q, obs), split_mask(obs)[1])  # [B, A]
        return ops(q).astype(ops(q).argmax(q, axis=-1), ops(q).int32)

    @api
    def loss(self, p: Params, target: Params, batch: Tree) -> tuple[Any, Tree]:
        return dqn_loss(*self._values(p, target, batch), batch)

    @api
    def priorities(self, p: Params, batch: Tree) -> Any:  # [B]
        """|TD error| of new transitions, as an actor without a target network sees it."""
        return ops(batch["reward"]).abs(td_error(*self._values(p, p, batch), batch))

    def _values(self, p: Params, target: Params, batch: Tree) -> tuple[Any, Any, Any]:
        """Values of the first and of the last observations [B, A], and those that choose the last action."""
        possible = split_mask(batch["next_obs"])[1]
        q_tm1 = self.q.q_values(p.q, batch["obs"])
        q_t = masked(self.q.q_values(target.q, batch["next_obs"]), possible)
        selector = masked(self.q.q_values(p.q, batch["next_obs"]), possible) if self.config.double else None
        return q_tm1, q_t, selector

    def gradients(self, state: Tree, prepared: Tree, draws: Tree) -> tuple[Tree, Tree]:
        differentiate = ops(prepared["reward"]).value_and_grad(self.loss)
        (_, metrics), gradients = differentiate(state["params"], state["target"], prepared)
        return gradients, metrics

    def apply_gradients(self, state: Tree, gradients: Tree) -> Tree:
        params, optimiser = self.optimiser.step(state["params"], gradients, state["optimiser"])
        target = periodic(state["target"], params, optimiser["count"], self.config.target_period)
        return {"params": params, "target": target, "optimiser": optimiser}

    def act_noise(self, rng: np.random.Generator, lead: tuple[int, ...]) -> np.ndarray:
        return rng.random(lead, dtype=np.float32)

    def draws(self, rng: np.random.Generator, rows: int) -> Tree:
        return {}

    def ladder(self, actor: int, actors: int) -> float:
        return float(LADDER_BASE ** (1 + LADDER_SLOPE * actor / max(1, actors - 1)))

    def exploration(self, steps: int) -> float:
        return float(self.epsilon(float(steps)))
