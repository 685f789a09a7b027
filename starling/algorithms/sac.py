"""SAC (Haarnoja et al., 2018b). Departs: critics, policy and temperature take their gradients at the same parameters
(the paper updates the critics first), so the three are one loss with one Adam.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from starling.algorithms.base import Algorithm, check_range
from starling.algorithms.plans import Replay
from starling.algorithms.policies import policy_noise, scaled_to_bounds
from starling.backends import ops
from starling.components.base import api
from starling.components.networks.heads import TwinCritics, ValueHead, squashed_head_for
from starling.components.networks.initialisers import constant
from starling.components.networks.whole import CriticNetwork, PolicyNetwork, seeing, torso_for
from starling.components.optimisers import Adam, Optimiser
from starling.components.schedules import Constant
from starling.components.targets import polyak
from starling.core.errors import SpaceError
from starling.core.params import Params
from starling.core.spaces import Float, Space
from starling.core.trees import Tree, map_leaves
from starling.maths.policy_gradients import entropy_coefficient_loss, soft_policy_loss
from starling.maths.td import soft_q_target

__all__ = ["SAC", "SACConfig"]


@dataclass(frozen=True, kw_only=True)
class SACConfig:
    """Settings of SAC."""

    envs: int = 1  # environments stepped together
    learning_rate: float = 3e-4
    gamma: float = 0.99
    n_step: int = 1
    tau: float = 0.005  # share of the critics mixed into their targets at each update
    capacity: int = 1_000_000  # transitions kept
    batch_size: int = 256
    learning_starts: int = 100  # transitions before the first update
    train_every: int = 1  # environment steps between rounds of updates
    updates: int = 1  # updates in a round
    overlap: bool = False  # act with the weights from before the last round, so that acting and learning overlap
    hold_noise: int = 1  # steps that one draw of exploration noise lasts; more explores further
    temperature: float = 1.0  # the entropy's weight at the start
    learn_temperature: bool = True
    target_entropy: float | None = None  # nats; None: minus the number of action dimensions
    critics: int = 2
    hidden: tuple[int, ...] = (256, 256)
    activation: str = "relu"
    torso: dict[str, Any] = field(default_factory=dict)  # a component spec; takes the place of hidden and activation
    image: dict[str, Any] = field(default_factory=dict)  # a component spec; takes the place of the network for images

    def __post_init__(self) -> None:
        check_range(self, envs=(1, 65536), learning_rate=(0, 10), gamma=(0, 1), n_step=(1, 1000), tau=(0, 1))
        check_range(self, capacity=(1, 1e10), batch_size=(1, 1e7), train_every=(1, 1e9), updates=(1, 1e6))
        check_range(self, temperature=(1e-8, 1e6), critics=(1, 100), learning_starts=(0, 1e10), hidden=(1, 1e6))
        check_range(self, hold_noise=(1, 1e6))


class SAC(Algorithm):
    """Soft actor-critic, for continuous actions inside bounds; it sees them in [−1, 1]."""

    config: SACConfig
    policy: PolicyNetwork
    critics: TwinCritics
    optimiser: Optimiser
    bounds: Float  # of the environment's actions

    name: ClassVar[str] = "sac"
    Config: ClassVar[type] = SACConfig
    shared: ClassVar[tuple[str, ...]] = ("batch_size",)

    @classmethod
    def compose(cls, config: SACConfig, obs: Space, action: Space, envs: int, total_steps: int) -> SAC:
        if not isinstance(action, Float) or len(action.shape) != 1 or not action.bounded:
            raise SpaceError(f"sac needs a vector of bounded continuous actions, not {action}; try ppo.")
        torso = torso_for(config.torso, config.hidden, config.activation, init="lecun")
        critic = CriticNetwork(seeing(obs, config.image), torso, ValueHead())
        return cls(
            observation_space=obs,
            action_space=Float(action.shape, -1.0, 1.0),
            envs=envs,
            config=config,
            policy=PolicyNetwork(seeing(obs, config.image), torso, squashed_head_for(action)),
            critics=TwinCritics(critic, config.critics),
            optimiser=Adam(Constant(config.learning_rate)),
            bounds=action,
        )

    @property
    def plan(self) -> Replay:
        c = self.config
        return Replay(
            capacity=c.capacity, batch_size=c.batch_size, min_size=max(c.learning_starts, c.batch_size), gamma=c.gamma,
            n_step=c.n_step, every=c.train_every, updates=c.updates,
            overlap=c.overlap,
        )  # fmt: skip

    def init(self, params: Params) -> Tree:
        target = Params(critics=map_leaves(lambda leaf: leaf + 0, params["critics"]))  # a copy: both may be donated
        return {"params": params, "target": target, "optimiser": self.optimiser.init(params)}

    @api
    def act(self, p: Params, obs: Any, noise: Any, explore: Any) -> dict[str, Any]:
        return {"action": self.policy.distribution(p.policy, obs).sample(noise)}

    @api
    def greedy(self, p: Params, obs: Any) -> Any:
        return self.policy.distribution(p.policy, obs).mode()

    @api
    def loss(self, p: Params, target: Params, batch: Tree, draws: Tree) -> tuple[Any, Tree]:
        """Critic loss + policy loss + temperature loss; each moves its own parameters alone."""
        xp = ops(batch["reward"])
        log_alpha = p.get("log_alpha", (), constant(float(np.log(self.config.temperature))))
        alpha = xp.stop_gradient(xp.exp(log_alpha))

        a_t, log_prob_t = self.policy.distribution(p.policy, batch["next_obs"]).sample_with_log_prob(draws["next"])
        q_t = xp.min(self.critics.q_values(target.critics, batch["next_obs"], a_t), axis=-1)  # [B]
        goal = xp.stop_gradient(soft_q_target(batch["reward"], batch["discount"], q_t, log_prob_t, alpha))  # [B]
        q_tm1 = self.critics.q_values(p.critics, batch["obs"], batch["action"])  # [B, critics]
        critic = 0.5 * xp.sum(xp.mean(batch["weight"][..., None] * xp.square(q_tm1 - goal[..., None]), axis=0))

        action, log_prob = self.policy.distribution(p.policy, batch["obs"]).sample_with_log_prob(draws["now"])
        fixed = map_leaves(xp.stop_gradient, p.critics)
        q = xp.min(self.critics.q_values(fixed, batch["obs"], action), axis=-1)  # [B]
        policy = xp.mean(soft_policy_loss(q, log_prob, alpha))

        total = critic + policy
        if self.config.learn_temperature:
            total = total + xp.mean(entropy_coefficient_loss(log_alpha, log_prob, self._target_entropy))
        losses = {"critic": critic, "policy": policy}
        return total, {"loss": losses, "temperature": alpha, "entropy": -xp.mean(log_prob), "q": xp.mean(q_tm1)}

    @property
    def _target_entropy(self) -> float:
        given = self.config.target_entropy
        return -float(self.bounds.size) if given is None else given

    def gradients(self, state: Tree, prepared: Tree, draws: Tree) -> tuple[Tree, Tree]:
        differentiate = ops(prepared["reward"]).value_and_grad(self.loss)
        (_, metrics), gradients = differentiate(state["params"], state["target"], prepared, draws)
        return gradients, metrics

    def apply_gradients(self, state: Tree, gradients: Tree) -> Tree:
        params, optimiser = self.optimiser.step(state["params"], gradients, state["optimiser"])
        target = Params(critics=polyak(state["target"]["critics"], params["critics"], self.config.tau))
        return {"params": params, "target": target, "optimiser": optimiser}

    def act_noise(self, rng: np.random.Generator, lead: tuple[int, ...]) -> np.ndarray:
        return policy_noise(self.action_space, rng, lead)

    @property
    def hold_noise(self) -> int:
        return self.config.hold_noise

    def draws(self, rng: np.random.Generator, rows: int) -> Tree:
        shape = (rows, self.bounds.size)
        return {name: rng.standard_normal(shape, dtype=np.float32) for name in ("now", "next")}

    def to_env(self, action: np.ndarray) -> np.ndarray:
        return scaled_to_bounds(self.bounds, action)
