"""DQN (Mnih et al., 2015), double (van Hasselt et al., 2016), dueling (Wang et al., 2016), n-step,
prioritized replay (Schaul et al., 2016) and Ape-X's ladder of ε (Horgan et al., 2018).
Departs: Adam for RMSProp; double by default; Huber loss of the error instead of its clipped gradient (the same slope).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from starling.algorithms.base import Choice, Learned
from starling.algorithms.gradient import GradientAlgorithm
from starling.backends import ops
from starling.components.base import Component, api
from starling.components.networks.encoders import split_mask
from starling.components.networks.heads import DuelingHead, QHead
from starling.components.networks.normalisers import ObservationNormaliser, ReturnScale
from starling.components.networks.whole import QNetwork, seeing, torso_for
from starling.components.optimisers import Adam
from starling.components.schedules import LinearSchedule, annealed
from starling.components.targets import Copy
from starling.core.errors import ConfigError, SpaceError
from starling.core.params import Params
from starling.core.settings import Settings, setting
from starling.core.spaces import Int, Space
from starling.core.trees import Tree
from starling.experience import plan_like
from starling.experience.demonstrations import Demonstrated
from starling.experience.transitions import Transitions
from starling.maths.distributions import masked
from starling.maths.exploration import apex_epsilon, epsilon_greedy
from starling.maths.td import double_q_error, huber, q_learning_error

__all__ = ["DQN", "DQNConfig"]


@dataclass(frozen=True, kw_only=True)
class DQNConfig(Settings):
    """Settings of DQN."""

    envs: int = setting(1, "environments stepped together", 1, 65536)
    learning_rate: float = setting(1e-3, "step size of Adam", 0, 10)
    anneal: bool = setting(False, "let the learning rate fall linearly to 0 over the run")
    gamma: float = setting(0.99, "discount of rewards, per step", 0, 1)
    n_step: int = setting(1, "rewards in a row before a value is bootstrapped", 1, 1000)
    double: bool = setting(True, "choose the next action by the online network, value it by the target")
    dueling: bool = setting(False, "separate streams for the value of a state and the advantages of actions")
    plan: str = setting("transitions", "plan of what is kept and drawn; see `starling list`")
    capacity: int = setting(100_000, "transitions kept", 1, 1e10)
    alpha: float = setting(0.0, "exponent of priorities; 0 draws uniformly", 0, 10)
    beta: float = setting(0.4, "exponent of importance weights at the start; 1 at the end of the run", 0, 1)
    batch_size: int = setting(64, "transitions that an update learns from", 1, 1e7)
    learning_starts: int = setting(1_000, "steps of the run before the first update", 0, 1e10)
    train_every: int = setting(4, "steps of the run between rounds of updates", 1, 1e9)
    updates: int = setting(1, "updates in a round", 1, 1e6)
    target_period: int = setting(250, "updates between copies to the target network", 1, 1e9)
    epsilon_start: float = setting(1.0, "chance of a random action at the start", 0, 1)
    epsilon_end: float = setting(0.05, "chance of a random action in the end", 0, 1)
    epsilon_fraction: float = setting(0.1, "share of the run over which epsilon falls", 0, 1)
    demonstrations: str = setting("", "directory of a data set of episodes to learn from as well")
    demonstrated: float = setting(0.25, "share of every batch that comes from the demonstrations", 0, 1)
    ladder: bool = setting(False, "explore in every environment with an epsilon of its own, as Ape-X does")
    max_gradient: float = setting(10.0, "largest global norm of the gradients; 0 leaves them alone", 0, 1e9)
    normalise_observations: bool = setting(False, "subtract the running mean of observations and divide by deviation")
    normalise_rewards: bool = setting(False, "divide rewards by the running deviation of the discounted return")
    hidden: tuple[int, ...] = setting((256, 256), "sizes of the hidden layers", 1, 1e6)
    activation: str = setting("relu", "activation of the hidden layers")
    torso: Component | None = setting(None, "a component in place of hidden and activation")
    image: Component | None = setting(None, "a component in place of the network for images")

    def check(self) -> None:
        falling = (self.epsilon_start, self.epsilon_end, self.epsilon_fraction)
        if self.ladder and falling != (1.0, 0.05, 0.1):
            raise ConfigError("epsilon_start, epsilon_end and epsilon_fraction have no effect with ladder; drop them.")
        if self.demonstrations and self.plan != "transitions":
            raise ConfigError(f"plan={self.plan!r} has no effect with demonstrations; drop one of them.")


class DQN(GradientAlgorithm):
    """Deep Q-network, for discrete actions."""

    config: DQNConfig
    q: QNetwork
    optimisers: Mapping[str, Adam]
    normaliser: ObservationNormaliser | None
    return_scale: ReturnScale | None
    epsilon: LinearSchedule

    name: ClassVar[str] = "dqn"
    Config: ClassVar[type] = DQNConfig
    traced: ClassVar[tuple[str, ...]] = ("act", "greedy", "priorities", "learn")

    @classmethod
    def compose(cls, config: DQNConfig, obs: Space, action: Space) -> DQN:
        if not isinstance(action, Int) or action.shape:
            raise SpaceError(f"dqn chooses one of several actions; the action space is {action}. Try ppo or sac.")
        torso = torso_for(config.torso, config.hidden, config.activation, init="lecun")
        head = DuelingHead(action.categories) if config.dueling else QHead(action.categories)
        rate = annealed(config.learning_rate, config.anneal)
        return cls(
            observation_space=obs,
            action_space=action,
            config=config,
            q=QNetwork(seeing(obs, config.image), torso, head),
            optimisers={"q": Adam(rate, clip=config.max_gradient)},
            normaliser=ObservationNormaliser(obs) if config.normalise_observations else None,
            return_scale=ReturnScale() if config.normalise_rewards else None,
            epsilon=LinearSchedule(config.epsilon_start, config.epsilon_end, config.epsilon_fraction),
        )

    @property
    def plan(self) -> Transitions:
        c = self.config
        own = plan_like(Transitions, c.plan)(
            envs=c.envs, capacity=c.capacity, batch_size=c.batch_size, learning_starts=c.learning_starts,
            every=c.train_every, updates=c.updates, alpha=c.alpha, beta=LinearSchedule(c.beta, 1.0),
            gamma=c.gamma, n_step=c.n_step, returns=c.normalise_rewards,
        )  # fmt: skip
        return Demonstrated.of(own, c.demonstrations, c.demonstrated) if c.demonstrations else own

    @property
    def targets(self) -> Mapping[str, Copy]:
        return {"q": Copy(self.config.target_period)}

    @api
    def act(self, p: Params, obs: Any, memory: Tree, noise: Any, explore: Any) -> Choice:
        q = self.q_values(p, p.q, obs)  # [B, A]
        return Choice(epsilon_greedy(q, explore, noise, split_mask(obs)[1]), memory, {})

    @api
    def greedy(self, p: Params, obs: Any, memory: Tree) -> Choice:
        q = masked(self.q_values(p, p.q, obs), split_mask(obs)[1])  # [B, A]
        return Choice(ops(q).astype(ops(q).argmax(q, axis=-1), ops(q).int32), memory, {})

    def q_values(self, p: Params, q: Params, obs: Any) -> Any:  # [B, A]
        """Values by the network ``q``: the online one, or the target."""
        return self.q.q_values(q, obs if self.normaliser is None else self.normaliser(p.normaliser, obs))

    @api
    def loss(self, p: Params, state: Tree, batch: Tree, draws: Tree) -> tuple[Any, Learned]:
        """Mean Huber loss of the TD error, by importance weight."""
        q_tm1, error = self.errors(p, state["targets"].q, batch)
        xp, size = ops(error), ops(error).abs(error)  # [B]
        loss = xp.mean(batch["weight"] * huber(error))
        metrics = {"loss": {"td": loss}, "q": xp.mean(q_tm1), "td_error": xp.mean(size)}
        return loss, Learned(metrics, size if self.plan.prioritizes else None)

    def errors(self, p: Params, target: Params, batch: Tree) -> tuple[Any, Any]:
        """Values of all actions at the first step [B, A], and the TD error of the one taken [B]."""
        possible = split_mask(batch["next_obs"])[1]
        q_tm1 = self.q_values(p, p.q, batch["obs"])  # [B, A]
        q_t = masked(self.q_values(p, target, batch["next_obs"]), possible)  # [B, A]
        reward = batch["reward"] if self.return_scale is None else self.return_scale(p.return_scale, batch["reward"])
        step = (batch["action"], reward, batch["discount"])
        if not self.config.double:
            return q_tm1, q_learning_error(q_tm1, *step, q_t)
        q_t_selector = masked(self.q_values(p, p.q, batch["next_obs"]), possible)  # [B, A]
        return q_tm1, double_q_error(q_tm1, *step, q_t, q_t_selector)

    @api
    def priorities(self, p: Params, batch: Tree) -> Any:  # [B]
        """|TD error| of new transitions, as an actor without a target network sees it."""
        return ops(batch["reward"]).abs(self.errors(p, p.q, batch)[1])

    def act_noise(self, rng: np.random.Generator, lead: tuple[int, ...]) -> np.ndarray:
        return rng.random(lead, dtype=np.float32)

    def exploration(self, progress: float, rows: np.ndarray, total: int) -> Any:
        if self.config.ladder:
            return np.array([apex_epsilon(row, total) for row in rows], np.float32)
        return self.epsilon(progress)
