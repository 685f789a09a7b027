"""R2D2 (Kapturowski et al., 2019): Q-learning with memory, from stored sequences with burn-in.
Departs: Adam ε of 1e-8; the sequence's memory is the stored one, brought up to date over the burn-in by both networks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from starling.algorithms.base import Choice, Learned
from starling.algorithms.gradient import GradientAlgorithm
from starling.backends import ops
from starling.components.base import Component, api
from starling.components.networks.encoders import split_mask
from starling.components.networks.heads import DuelingHead
from starling.components.networks.layers import MLP
from starling.components.networks.normalisers import ObservationNormaliser, ReturnScale
from starling.components.networks.recurrent import memory_for
from starling.components.networks.whole import seeing
from starling.components.optimisers import Adam
from starling.components.schedules import LinearSchedule, annealed
from starling.components.targets import Copy
from starling.core.errors import SpaceError
from starling.core.params import Params
from starling.core.settings import Settings, setting
from starling.core.spaces import Dict, Int, Space
from starling.core.trees import Tree, map_leaves
from starling.experience import plan_like
from starling.experience.sequences import Sequences
from starling.maths.distributions import masked
from starling.maths.exploration import apex_epsilon, epsilon_greedy
from starling.maths.normalisation import rescale_value, unscale_value
from starling.maths.returns import n_step_returns

__all__ = ["R2D2", "R2D2Config"]


@dataclass(frozen=True, kw_only=True)
class R2D2Config(Settings):
    """Settings of R2D2."""

    envs: int = setting(8, "environments stepped together", 1, 65536)
    learning_rate: float = setting(1e-3, "step size of Adam", 0, 10)
    anneal: bool = setting(False, "let the learning rate fall linearly to 0 over the run")
    gamma: float = setting(0.99, "discount of rewards, per step", 0, 1)
    n_step: int = setting(5, "rewards in a row before a value is bootstrapped", 1, 1000)
    length: int = setting(20, "steps of a sequence that are learned from", 1, 10_000)
    burn_in: int = setting(10, "steps before them, from which memory is brought up to date", 0, 10_000)
    overlap: int = setting(20, "steps that neighbouring sequences share", 0, 10_000)
    rescale: bool = setting(True, "learn values squashed by h(x) = sign(x)(√(|x|+1) − 1) + εx")
    plan: str = setting("sequences", "plan of what is kept and drawn; see `starling list`")
    capacity: int = setting(10_000, "sequences kept", 1, 1e9)
    alpha: float = setting(0.6, "exponent of priorities; 0 draws uniformly", 0, 10)
    beta: float = setting(0.4, "exponent of importance weights at the start; 1 at the end of the run", 0, 1)
    eta: float = setting(0.9, "share of a sequence's largest error in its priority; the rest is the mean", 0, 1)
    batch_size: int = setting(32, "sequences that an update learns from", 1, 1e6)
    learning_starts: int = setting(2_000, "steps of the run before the first update", 0, 1e10)
    train_every: int = setting(32, "steps of the run between rounds of updates", 1, 1e9)
    updates: int = setting(1, "updates in a round", 1, 1e6)
    target_period: int = setting(250, "updates between copies to the target network", 1, 1e9)
    epsilon_start: float = setting(1.0, "chance of a random action at the start", 0, 1)
    epsilon_end: float = setting(0.02, "chance of a random action in the end", 0, 1)
    epsilon_fraction: float = setting(0.2, "share of the run over which epsilon falls", 0, 1)
    ladder: bool = setting(False, "explore in every environment with an epsilon of its own, as Ape-X does")
    max_gradient: float = setting(10.0, "largest global norm of the gradients; 0 leaves them alone", 0, 1e9)
    normalise_observations: bool = setting(False, "subtract the running mean of observations and divide by deviation")
    memory: Literal["lstm", "gru"] = setting("lstm", "recurrent layer")
    memory_size: int = setting(64, "units of the recurrent layer", 1, 1e6)
    hidden: tuple[int, ...] = setting((64,), "sizes of the hidden layers before the recurrent one", 1, 1e6)
    activation: str = setting("relu", "activation of the hidden layers")
    image: Component | None = setting(None, "a component in place of the network for images")


class RecurrentQ(Component):
    """The value of every action, with memory."""

    encoder: Component
    torso: Component
    core: Component
    head: Component

    @api
    def step(self, p: Params, obs: Any, memory: Tree) -> tuple[Any, Tree]:  # [B, O] -> [B, A]
        seen, _ = split_mask(obs)
        features, memory = self.core.step(p.core, self.torso(p.torso, self.encoder(p.encoder, seen)), memory)
        return self.head.q_values(p.head, features), memory

    @api
    def unroll(self, p: Params, obs: Any, memory: Tree) -> tuple[Any, Tree]:  # [T, B, O] -> [T, B, A]
        seen, _ = split_mask(obs)
        features = self.torso(p.torso, self.encoder(p.encoder, seen))
        nowhere = ops(features).zeros_like(features[..., 0]) > 0.0  # [T, B]: a sequence lies within an episode
        features, memory = self.core.unroll(p.core, features, memory, nowhere)
        return self.head.q_values(p.head, features), memory


class R2D2(GradientAlgorithm):
    """Recurrent replay distributed DQN, for discrete actions."""

    config: R2D2Config
    q: RecurrentQ
    optimisers: Mapping[str, Adam]
    normaliser: ObservationNormaliser | None
    return_scale: ReturnScale | None
    epsilon: LinearSchedule

    name: ClassVar[str] = "r2d2"
    Config: ClassVar[type] = R2D2Config

    @classmethod
    def compose(cls, config: R2D2Config, obs: Space, action: Space) -> R2D2:
        if not isinstance(action, Int) or action.shape:
            raise SpaceError(f"r2d2 chooses one of several actions; the action space is {action}. Try ppo or sac.")
        torso = MLP(config.hidden, config.activation, "lecun")
        core = memory_for(config.memory, config.memory_size)
        assert core is not None
        rate = annealed(config.learning_rate, config.anneal)
        return cls(
            observation_space=obs,
            action_space=action,
            config=config,
            q=RecurrentQ(seeing(obs, config.image), torso, core, DuelingHead(action.categories)),
            optimisers={"q": Adam(rate, clip=config.max_gradient)},
            normaliser=ObservationNormaliser(obs) if config.normalise_observations else None,
            return_scale=None,
            epsilon=LinearSchedule(config.epsilon_start, config.epsilon_end, config.epsilon_fraction),
        )

    @property
    def plan(self) -> Sequences:
        c = self.config
        return plan_like(Sequences, c.plan)(
            envs=c.envs, capacity=c.capacity, batch_size=c.batch_size, learning_starts=c.learning_starts,
            every=c.train_every, updates=c.updates, alpha=c.alpha, beta=LinearSchedule(c.beta, 1.0),
            length=c.length, burn_in=c.burn_in, overlap=c.overlap,
        )  # fmt: skip

    @property
    def memory(self) -> Dict:
        return self.q.core.memory

    @property
    def targets(self) -> Mapping[str, Copy]:
        return {"q": Copy(self.config.target_period)}

    def seen(self, p: Params, obs: Any) -> Any:
        return obs if self.normaliser is None else self.normaliser(p.normaliser, obs)

    @api
    def act(self, p: Params, obs: Any, memory: Tree, noise: Any, explore: Any) -> Choice:
        q, memory = self.q.step(p.q, self.seen(p, obs), memory)  # [B, A]
        return Choice(epsilon_greedy(q, explore, noise, split_mask(obs)[1]), memory, {})

    @api
    def greedy(self, p: Params, obs: Any, memory: Tree) -> Choice:
        q, memory = self.q.step(p.q, self.seen(p, obs), memory)
        best = ops(q).argmax(masked(q, split_mask(obs)[1]), axis=-1)  # [B]
        return Choice(ops(q).astype(best, ops(q).int32), memory, {})

    def prepare(self, state: Tree, batch: Tree) -> Tree:
        """The batch with its mask as ``valid`` [B, T]: rows are sequences, and all of them count the same."""
        return {"valid" if name == "mask" else name: part for name, part in batch.items()}

    def observed(self, batch: Tree) -> tuple[Tree, Any]:
        """The observations before each step [B, T]."""
        mask = ops(batch["weight"]).astype(batch["mask"], ops(batch["weight"]).float32)
        return map_leaves(lambda x: x[:, :-1, ...], batch["obs"]), mask

    @api
    def loss(self, p: Params, state: Tree, batch: Tree, draws: Tree) -> tuple[Any, Learned]:
        """Squared n-step double-Q error behind the burn-in, by importance weight; a sequence's errors are averaged."""
        c, weight = self.config, batch["weight"]  # [B]
        xp = ops(weight)
        facts = ("obs", "action", "reward", "terminated", "truncated", "valid")
        given = {name: batch[name] for name in facts}
        along = map_leaves(lambda x: xp.moveaxis(x, 0, 1), given)  # [T, B]; obs [T+1, B]
        obs = self.seen(p, along["obs"])
        q = self.values_along(p.q, obs, batch["memory"])  # [L+1, B, A]
        q_target = xp.stop_gradient(self.values_along(state["targets"].q, obs, batch["memory"]))

        learned = {name: along[name][c.burn_in :, ...] for name in facts[1:]}  # [L, B]
        mask = xp.astype(learned["valid"], xp.float32)
        possible = split_mask(along["obs"])[1]
        possible = None if possible is None else possible[c.burn_in + 1 :, ...]
        best = xp.argmax(masked(xp.stop_gradient(q[1:, ...]), possible), axis=-1)  # [L, B]
        v_t = self.unscaled(xp.take_along(q_target[1:, ...], best))  # [L, B]
        discount_t = c.gamma * (1.0 - xp.astype(learned["terminated"], xp.float32))  # [L, B]
        goal = n_step_returns(learned["reward"], discount_t, v_t, c.n_step, cut_t=learned["truncated"])  # [L, B]
        error = (self.scaled(goal) - xp.take_along(q[:-1, ...], learned["action"])) * mask  # [L, B]

        steps = xp.maximum(xp.sum(mask, axis=0), 1.0)  # [B]
        size = xp.abs(xp.stop_gradient(error))
        loss = xp.mean(weight * 0.5 * xp.sum(xp.square(error), axis=0) / steps)
        priorities = c.eta * xp.max(size, axis=0) + (1.0 - c.eta) * xp.sum(size, axis=0) / steps  # [B]
        metrics = {"loss": {"td": loss}, "q": xp.mean(q), "td_error": xp.mean(xp.sum(size, axis=0) / steps)}
        return loss, Learned(metrics, priorities if self.plan.prioritizes else None)

    def values_along(self, q: Params, obs: Any, memory: Tree) -> Any:
        """Values behind the burn-in [L+1, B, A]; no gradient flows through the burn-in."""
        burn_in = self.config.burn_in
        if burn_in:
            xp = ops(memory["h"])
            _, memory = self.q.unroll(q, map_leaves(lambda x: x[:burn_in, ...], obs), memory)
            memory = map_leaves(xp.stop_gradient, memory)
        return self.q.unroll(q, map_leaves(lambda x: x[burn_in:, ...], obs), memory)[0]

    def scaled(self, x: Any) -> Any:
        return rescale_value(x) if self.config.rescale else x

    def unscaled(self, x: Any) -> Any:
        return unscale_value(x) if self.config.rescale else x

    def act_noise(self, rng: np.random.Generator, lead: tuple[int, ...]) -> np.ndarray:
        return rng.random(lead, dtype=np.float32)

    def exploration(self, progress: float, rows: np.ndarray, total: int) -> Any:
        if self.config.ladder:
            return np.array([apex_epsilon(row, total) for row in rows], np.float32)
        return self.epsilon(progress)
