"""The agent: an algorithm inside somebody else's program, which owns the environments and the loop."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from starling.algorithms import get_algorithm
from starling.algorithms.base import Algorithm, inputs_of
from starling.algorithms.plans import Replay, Rollouts
from starling.backends import get_backend
from starling.components.graph.assembly import assemble
from starling.components.graph.build import build
from starling.core.errors import CheckpointError, ConfigError, DataError
from starling.core.params import Params
from starling.core.random import stream
from starling.core.spaces import Space
from starling.core.trees import Tree, items, map_leaves
from starling.data import NStepAdder
from starling.experiments.backends import choose_backends
from starling.experiments.settings import overridden
from starling.records import checkpoint
from starling.roles.learner import Learner
from starling.roles.policy import Policy
from starling.roles.replay import batch_of, table_for

__all__ = ["Agent"]


class Agent:
    """Acts, observes and learns on demand.

    agent = Agent.build("dqn", Float((4,)), Int((), high=2))
    action = agent.act(obs[None])[0]
    ...                                                       # the program applies the action
    agent.observe(reward, next_obs, terminated, truncated)    # the outcome of env_id's last action
    agent.update()                                            # learns once enough was observed
    """

    def __init__(self, algorithm: Algorithm, backend: str, act_backend: str, seed: int, total_steps: int) -> None:
        self.algorithm = algorithm
        assembly = assemble(algorithm, inputs_of(algorithm))
        chosen = choose_backends(assembly, backend, act_backend)
        graph = build(assembly, get_backend(chosen.learn), seed)
        acting = graph if chosen.act == chosen.learn else build(assembly, get_backend(chosen.act), seed)
        self._learner, self._policy = Learner(graph, seed), Policy(acting)
        self._rng = stream(seed, "agent", "noise")
        self.steps = 0
        plan = algorithm.plan
        self._memory = _ReplayMemory(algorithm, plan, seed) if isinstance(plan, Replay) else _RolloutMemory(self, plan)
        self._choices: dict[int, tuple[Tree, Tree, dict[str, Any]]] = {}

    @classmethod
    def build(
        cls, algo: str, observation_space: Space, action_space: Space, *, envs: int = 1, backend: str = "auto",
        act_backend: str = "auto", seed: int = 0, total_steps: int = 1_000_000, **settings: Any,
    ) -> Agent:  # fmt: skip
        """An agent for these spaces; ``settings`` are the algorithm's own, ``envs`` how many it will be told of."""
        algorithm = get_algorithm(algo)
        config = overridden(algorithm.Config(), {"envs": envs, **settings}, algo)
        composed = algorithm.compose(config, observation_space, action_space, envs, total_steps)
        return cls(composed, backend, act_backend, seed, total_steps)

    def act(self, observations: Tree, explore: bool = True, env_ids: Sequence[int] | None = None) -> np.ndarray:
        """Actions for observations [B, …], as the environments take them. Row i belongs to ``env_ids[i]``, or to i."""
        observations = self._fitting(observations, "observations")
        if not explore:
            return self.algorithm.to_env(self._policy.greedy(observations))
        count = len(next(leaf for _, leaf in items(observations)))
        ids = range(count) if env_ids is None else env_ids
        if len(ids) != count:
            raise ConfigError(f"{count} observations and {len(ids)} env_ids arrived; there must be one for each.")
        noise = self.algorithm.act_noise(self._rng, (count,))
        chosen = dict(self._policy.act(observations, noise, self.algorithm.exploration(self.steps)))
        action = np.asarray(chosen.pop("action"))
        for row, env_id in enumerate(ids):
            one = slice(row, row + 1)
            self._choices[env_id] = map_leaves(lambda x, one=one: np.asarray(x)[one], (observations, action, chosen))
        return self.algorithm.to_env(action)

    def observe(
        self, reward: float, next_obs: Tree, terminated: bool = False, truncated: bool = False, env_id: int = 0
    ) -> None:
        """What the last action in environment ``env_id`` led to; ``next_obs`` is the true successor, never a reset."""
        if env_id not in self._choices:
            raise DataError(f"env_id={env_id} has no open action; call act(…, env_ids=[…]) for it first.")
        if not np.isfinite(reward):
            raise DataError(f"env_id={env_id}: the reward {reward!r:.60} arrived; one finite number was expected.")
        successor = self._fitting(map_leaves(lambda x: np.asarray(x)[None], next_obs), "next_obs")
        self._memory.add(env_id, self._choices[env_id], float(reward), bool(terminated), bool(truncated), successor)
        del self._choices[env_id]  # only now: what was refused may be offered again
        self.steps += 1

    def _fitting(self, observations: Tree, what: str) -> Tree:
        """Observations [B, …] with the dtypes of their space; refuses what does not fit it."""
        space = self.algorithm.observation_space.ranked(batch=True)
        reason = space.mismatch(observations)
        if reason is not None:
            with suppress(LookupError, TypeError):  # another structure: the reason above says so
                observations = map_leaves(_as_dtype, space.zeros((1,)), observations)
                reason = space.mismatch(observations)
        if reason is not None:
            raise DataError(f"{what} do not fit the observation space {space}: {reason}.")
        return observations

    def update(self, batch: Tree | None = None) -> dict[str, float] | None:
        """Learn from ``batch``, or from what was observed; None where that is not enough yet."""
        if batch is None:
            batch = self._memory.take()
            if batch is None:
                return None
            self._learner.update(batch, int(np.size(batch["reward"])))
            self._memory.learned(self._learner)
        else:
            if isinstance(self.algorithm.plan, Replay):
                batch = {"weight": np.ones_like(batch["reward"]), **batch}
            self._learner.update(batch, int(np.size(batch["reward"])))
        self._policy.load(self._learner.weights(), self._learner.version)
        return self._learner.metrics()

    def get_weights(self) -> Params:
        """The parameters, as NumPy arrays."""
        return self._learner.weights()

    def set_weights(self, weights: Tree) -> None:
        """Take over parameters, of this or another backend; the optimiser starts anew."""
        self._learner.load_weights(self._learner.fitted(weights))
        self._policy.load(self._learner.weights(), self._learner.version)

    def save(self, path: str | Path) -> Path:
        """Write what was learned (parameters, optimiser, targets) to a directory; observations are not kept."""
        path = Path(path)
        return checkpoint.save(path.parent, path.name, self._learner.state(), {"algo": self.algorithm.name})

    def load(self, path: str | Path) -> None:
        """Go on from what ``save`` wrote."""
        state, meta = checkpoint.load(Path(path))
        if meta.get("algo") != self.algorithm.name:
            raise ConfigError(f"{path} was saved by {meta.get('algo')!r}; this agent is {self.algorithm.name!r}.")
        try:
            self._learner.restore(state)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"{path} does not hold what an agent saves: {error!s:.200}.") from error
        self._policy.load(self._learner.weights(), self._learner.version)


def _as_dtype(like: np.ndarray, x: Any) -> np.ndarray:
    """Another width of the same kind of number is converted; another kind is left for the check to refuse."""
    x = np.asarray(x)
    return x.astype(like.dtype) if np.can_cast(x.dtype, like.dtype, "same_kind") else x


class _ReplayMemory:
    """Transitions in a table; every environment has an adder of its own, since they step at their own pace."""

    def __init__(self, algorithm: Algorithm, plan: Replay, seed: int) -> None:
        self._plan, self._table = plan, table_for(algorithm, seed)
        self._keys = np.zeros(0, np.int64)  # of the last draw
        self._adders: dict[int, NStepAdder] = {}

    def add(
        self,
        env_id: int,
        choice: tuple[Tree, Tree, Any],
        reward: float,
        terminated: bool,
        truncated: bool,
        next_obs: Tree,
    ) -> None:
        if env_id not in self._adders:
            self._adders[env_id] = NStepAdder(self._table, num_envs=1, n=self._plan.n_step, gamma=self._plan.gamma)
        obs, action, extras = choice
        final = next_obs if terminated or truncated else None
        self._adders[env_id].add(
            obs, action, extras, np.array([reward], np.float32), np.array([terminated]), np.array([truncated]),
            next_obs, final, np.array([True]),
        )  # fmt: skip

    def take(self) -> Tree | None:
        if len(self._table) < self._plan.min_size:
            return None
        sample = self._table.sample(self._plan.batch_size)
        self._keys = sample.keys
        return batch_of(sample)

    def learned(self, learner: Learner) -> None:
        """Take over the priorities that the last update found."""
        if self._plan.alpha:
            self._table.update_priorities(self._keys, learner.priorities())


class _RolloutMemory:
    """Steps in a row per environment, until each has a rollout."""

    def __init__(self, agent: Agent, plan: Rollouts) -> None:
        self._agent, self._plan = agent, plan
        self._rows: dict[int, list[tuple[Tree, Tree]]] = {i: [] for i in range(agent.algorithm.envs)}

    def add(
        self,
        env_id: int,
        choice: tuple[Tree, Tree, Any],
        reward: float,
        terminated: bool,
        truncated: bool,
        next_obs: Tree,
    ) -> None:
        if env_id not in self._rows:
            raise DataError(f"env_id={env_id}; the agent was built for envs={len(self._rows)}, numbered from 0.")
        rows, length = self._rows[env_id], self._plan.length
        if len(rows) == length:
            waiting = [other for other, rows in self._rows.items() if len(rows) < length]
            remedy = f"environments {waiting} must catch up first" if waiting else "call update() first"
            raise DataError(f"environment {env_id} has a whole rollout of {length} steps; {remedy}.")
        obs, action, extras = choice
        if truncated and not terminated:
            reward += self._plan.gamma * float(self._agent._policy.values(next_obs)[0])
        discount = 0.0 if terminated or truncated else self._plan.gamma
        numbers = {"reward": reward, "discount": discount, "mask": 1.0}
        step = {"obs": obs, "action": action, **extras, **{k: np.full(1, v, np.float32) for k, v in numbers.items()}}
        rows.append((step, next_obs))

    def take(self) -> Tree | None:
        if any(len(rows) < self._plan.length for rows in self._rows.values()):
            return None
        columns = [map_leaves(lambda *x: np.stack(x), *(step for step, _ in rows)) for rows in self._rows.values()]
        batch = map_leaves(lambda *x: np.concatenate(x, axis=1), *columns)  # [T, B]
        last = map_leaves(lambda *x: np.concatenate(x), *(rows[-1][1] for rows in self._rows.values()))
        self._rows = {env_id: [] for env_id in self._rows}
        return {**batch, "next_obs": last}

    def learned(self, learner: Learner) -> None:
        """Rollouts are learned from once: nothing is kept of them."""
