"""SAC (Haarnoja et al., 2018b). Departs: critics, policy and temperature take their gradients at the same parameters
(the paper updates the critics first), so the three are one loss with one Adam.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from starling.algorithms.base import Choice, Learned
from starling.algorithms.gradient import GradientAlgorithm
from starling.algorithms.policies import policy_noise, scaled_to_bounds
from starling.backends import ops
from starling.components.base import Component, api
from starling.components.networks.heads import TwinCritics, ValueHead, squashed_head_for
from starling.components.networks.initialisers import constant
from starling.components.networks.normalisers import ObservationNormaliser, ReturnScale
from starling.components.networks.whole import CriticNetwork, PolicyNetwork, seeing, torso_for
from starling.components.optimisers import Adam
from starling.components.schedules import Constant
from starling.components.targets import Polyak
from starling.core.errors import SpaceError
from starling.core.params import Params
from starling.core.settings import Settings, setting
from starling.core.spaces import Float, Space
from starling.core.trees import Tree, map_leaves
from starling.experience import plan_like
from starling.experience.transitions import Transitions
from starling.maths.policy_gradients import entropy_coefficient_loss, soft_policy_loss
from starling.maths.td import soft_q_target

__all__ = ["SAC", "SACConfig"]


@dataclass(frozen=True, kw_only=True)
class SACConfig(Settings):
    """Settings of SAC."""

    envs: int = setting(1, "environments stepped together", 1, 65536)
    learning_rate: float = setting(3e-4, "step size of Adam", 0, 10)
    gamma: float = setting(0.99, "discount of rewards, per step", 0, 1)
    n_step: int = setting(1, "rewards in a row before a value is bootstrapped", 1, 1000)
    tau: float = setting(0.005, "share of the critics mixed into their targets at each update", 0, 1)
    plan: str = setting("transitions", "plan of what is kept and drawn; see `starling list`")
    capacity: int = setting(1_000_000, "transitions kept", 1, 1e10)
    batch_size: int = setting(256, "transitions that an update learns from", 1, 1e7)
    learning_starts: int = setting(256, "steps of the run before the first update", 0, 1e10)
    train_every: int = setting(1, "steps of the run between rounds of updates", 1, 1e9)
    updates: int = setting(1, "updates in a round", 1, 1e6)
    hold_noise: int = setting(1, "steps that one draw of exploration noise lasts; more explores further", 1, 1e6)
    temperature: float = setting(1.0, "weight of the entropy at the start", 1e-8, 1e6)
    learn_temperature: bool = setting(True, "move the temperature so that the entropy nears its target")
    target_entropy: float | None = setting(None, "nats; None: minus the number of action dimensions")
    critics: int = setting(2, "critics, of which the lowest value counts", 1, 100)
    normalise_observations: bool = setting(False, "subtract the running mean of observations and divide by deviation")
    normalise_rewards: bool = setting(False, "divide rewards by the running deviation of the discounted return")
    hidden: tuple[int, ...] = setting((256, 256), "sizes of the hidden layers", 1, 1e6)
    activation: str = setting("relu", "activation of the hidden layers")
    torso: Component | None = setting(None, "a component in place of hidden and activation")
    image: Component | None = setting(None, "a component in place of the network for images")


class SAC(GradientAlgorithm):
    """Soft actor-critic, for continuous actions inside bounds; it sees them in [−1, 1]."""

    config: SACConfig
    policy: PolicyNetwork
    critics: TwinCritics
    optimisers: Mapping[str, Adam]
    normaliser: ObservationNormaliser | None
    return_scale: ReturnScale | None
    bounds: Float  # of the environment's actions

    name: ClassVar[str] = "sac"
    Config: ClassVar[type] = SACConfig

    @classmethod
    def compose(cls, config: SACConfig, obs: Space, action: Space) -> SAC:
        if not isinstance(action, Float) or len(action.shape) != 1 or not action.bounded:
            raise SpaceError(f"sac needs a vector of bounded continuous actions, not {action}; try ppo.")
        torso = torso_for(config.torso, config.hidden, config.activation, init="lecun")
        critic = CriticNetwork(seeing(obs, config.image), torso, ValueHead())
        return cls(
            observation_space=obs,
            action_space=Float(action.shape, -1.0, 1.0),
            config=config,
            policy=PolicyNetwork(seeing(obs, config.image), torso, squashed_head_for(action)),
            critics=TwinCritics(critic, config.critics),
            optimisers={"all": Adam(Constant(config.learning_rate))},
            normaliser=ObservationNormaliser(obs) if config.normalise_observations else None,
            return_scale=ReturnScale() if config.normalise_rewards else None,
            bounds=action,
        )

    @property
    def plan(self) -> Transitions:
        c = self.config
        return plan_like(Transitions, c.plan)(
            envs=c.envs, capacity=c.capacity, batch_size=c.batch_size, learning_starts=c.learning_starts,
            every=c.train_every, updates=c.updates, gamma=c.gamma, n_step=c.n_step, returns=c.normalise_rewards,
        )  # fmt: skip

    @property
    def targets(self) -> Mapping[str, Polyak]:
        return {"critics": Polyak(self.config.tau)}

    def seen(self, p: Params, obs: Any) -> Any:
        return obs if self.normaliser is None else self.normaliser(p.normaliser, obs)

    @api
    def act(self, p: Params, obs: Any, memory: Tree, noise: Any, explore: Any) -> Choice:
        return Choice(self.policy.distribution(p.policy, self.seen(p, obs)).sample(noise), memory, {})

    @api
    def greedy(self, p: Params, obs: Any, memory: Tree) -> Choice:
        return Choice(self.policy.distribution(p.policy, self.seen(p, obs)).mode(), memory, {})

    @api
    def loss(self, p: Params, state: Tree, batch: Tree, draws: Tree) -> tuple[Any, Learned]:
        """Critic loss + policy loss + temperature loss; each moves its own parameters alone."""
        obs_tm1, obs_t, r_t = self.seen(p, batch["obs"]), self.seen(p, batch["next_obs"]), batch["reward"]
        xp = ops(r_t)
        if self.return_scale is not None:
            r_t = self.return_scale(p.return_scale, r_t)
        log_alpha = p.get("log_alpha", (), constant(float(np.log(self.config.temperature))))
        alpha = xp.stop_gradient(xp.exp(log_alpha))

        a_t, log_prob_t = self.policy.distribution(p.policy, obs_t).sample_with_log_prob(draws["next"])
        q_t = xp.min(self.critics.q_values(state["targets"].critics, obs_t, a_t), axis=-1)  # [B]
        goal = xp.stop_gradient(soft_q_target(r_t, batch["discount"], q_t, log_prob_t, alpha))  # [B]
        q_tm1 = self.critics.q_values(p.critics, obs_tm1, batch["action"])  # [B, critics]
        critic = 0.5 * xp.sum(xp.mean(batch["weight"][..., None] * xp.square(q_tm1 - goal[..., None]), axis=0))

        action, log_prob = self.policy.distribution(p.policy, obs_tm1).sample_with_log_prob(draws["now"])
        fixed = map_leaves(xp.stop_gradient, p.critics)
        q = xp.min(self.critics.q_values(fixed, obs_tm1, action), axis=-1)  # [B]
        policy = xp.mean(soft_policy_loss(q, log_prob, alpha))

        total = critic + policy
        if self.config.learn_temperature:
            total = total + xp.mean(entropy_coefficient_loss(log_alpha, log_prob, self.target_entropy))
        metrics = {"loss": {"critic": critic, "policy": policy}, "temperature": alpha}
        return total, Learned({**metrics, "entropy": -xp.mean(log_prob), "q": xp.mean(q_tm1)})

    @property
    def target_entropy(self) -> float:
        given = self.config.target_entropy
        return -float(self.bounds.size) if given is None else given

    def act_noise(self, rng: np.random.Generator, lead: tuple[int, ...]) -> np.ndarray:
        return policy_noise(self.action_space, rng, lead)

    @property
    def hold_noise(self) -> int:
        return self.config.hold_noise

    def draws(self, rng: np.random.Generator, batch: Tree) -> Tree:
        shape = (len(batch["reward"]), self.bounds.size)
        return {name: rng.standard_normal(shape, dtype=np.float32) for name in ("now", "next")}

    def to_env(self, action: np.ndarray) -> np.ndarray:
        return scaled_to_bounds(self.bounds, action)
