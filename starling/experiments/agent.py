"""The agent: an algorithm inside somebody else's program, which owns the environments and the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from starling.algorithms import ALGORITHMS
from starling.algorithms.base import Algorithm, inputs_of
from starling.algorithms.compiled.backends import choose_backends
from starling.algorithms.compiled.exploring import NoiseSource
from starling.algorithms.compiled.learner import Learner
from starling.algorithms.compiled.policy import Policy, acting_part, memory_where
from starling.backends import get_backend
from starling.components.graph.assembly import assemble
from starling.components.graph.build import build
from starling.core.errors import CheckpointError, ConfigError, DataError
from starling.core.params import Params, with_scopes
from starling.core.random import stream
from starling.core.spaces import Space
from starling.core.trees import Tree, items, map_leaves
from starling.envs.actions import ActionCodec
from starling.envs.given import GivenObservations
from starling.envs.protocol import Step
from starling.envs.spaces import from_gymnasium
from starling.experience.cadence import Round
from starling.experience.plan import Accumulator, Acted
from starling.experiments.settings import overridden
from starling.records import checkpoint

__all__ = ["Agent"]


class _Row:
    """One environment as the agent knows it: its noise, what it remembers, and its open action."""

    def __init__(self, algorithm: Algorithm, policy: Policy, seed: int, env_id: int) -> None:
        plan, spaces = algorithm.plan, algorithm.step_spaces
        self.accumulator: Accumulator | None = plan.accumulator(spaces, 1, 1) if plan.acts else None
        self.noise = NoiseSource(algorithm, 1, stream(seed, "agent", env_id))
        self.memory: Tree = policy.no_memory(1)
        self.first = True
        self.open: tuple[Tree, Acted] | None = None


class Agent:
    """Acts, observes and learns on demand.

    agent = Agent.build("dqn", env.observation_space, env.action_space)
    action = agent.act(obs[None])[0]
    ...                                                       # the program applies the action
    agent.observe(reward, next_obs, terminated, truncated)    # the outcome of env_id's last action
    agent.update()                                            # learns once enough was observed
    """

    def __init__(self, algorithm: Algorithm, backend: str, act_backend: str, seed: int, total_steps: int) -> None:
        if algorithm.plan.evaluates:
            raise ConfigError(
                f"{algorithm.name} learns from whole episodes of perturbed parameters, which an agent does not play; "
                "use starling.train."
            )
        self.algorithm, self._seed, self._total = algorithm, seed, total_steps
        assembly = assemble(algorithm, inputs_of(algorithm), algorithm.traced)
        chosen = choose_backends(assembly, backend, act_backend)
        graph = build(assembly, get_backend(chosen.learn), seed)
        acting = graph if chosen.act == chosen.learn else build(assembly, get_backend(chosen.act), seed)
        self._learner, self._policy = Learner(graph, seed), Policy(acting)
        self._plan, self.steps = algorithm.plan, 0
        self._feed = self._plan.feed(algorithm.step_spaces, self._plan.envs, seed)
        self._rows: dict[int, _Row] = {}
        self._chunks: dict[int, Tree] = {}  # by environment, until there are enough for a batch
        self._given = GivenObservations(algorithm.observation_space)
        self._outward: Callable[[int], Callable[[Tree], Any]] = lambda count: lambda action: action

    @classmethod
    def build(
        cls, algo: str, observation_space: Space | gym.Space[Any], action_space: Space | gym.Space[Any], *,
        envs: int = 1, backend: str = "auto", act_backend: str = "auto", seed: int = 0, total_steps: int = 1_000_000,
        **settings: Any,
    ) -> Agent:  # fmt: skip
        """An agent for these spaces, ours or Gymnasium's; ``settings`` are the algorithm's own, ``envs`` how many
        environments it will observe, ``total_steps`` what schedules run over."""
        algorithm = ALGORITHMS[algo]
        shared = {"envs": envs} if any(each.name == "envs" for each in fields(algorithm.Config)) else {}
        config = overridden(algorithm.Config(), {**shared, **settings}, algo)
        given = GivenObservations(observation_space)
        actions = action_space if isinstance(action_space, Space) else from_gymnasium(action_space)
        agent = cls(algorithm.compose(config, given.space, actions), backend, act_backend, seed, total_steps)
        agent._given = given
        if not isinstance(action_space, Space):
            agent._outward = cache(lambda count: ActionCodec(action_space, count).batch)
        return agent

    def act(self, observations: Tree, explore: bool = True, env_ids: Sequence[int] | None = None) -> np.ndarray:
        """Actions for observations [B, …], as the environments take them. Row i belongs to ``env_ids[i]``, or to i."""
        observations = self._given.fitting(observations, "observations")
        count = len(next(leaf for _, leaf in items(observations)))
        ids = list(range(count) if env_ids is None else env_ids)
        if len(ids) != count:
            raise ConfigError(f"{count} observations and {len(ids)} env_ids arrived; there must be one for each.")
        if explore and self._feed.whole and not all(0 <= env_id < self._plan.envs for env_id in ids):
            raise DataError(f"env_ids={ids}; the agent was built for envs={self._plan.envs}, numbered from 0.")
        rows = [self._row(env_id) for env_id in ids]
        memory = map_leaves(lambda *x: np.concatenate(x), *(row.memory for row in rows))
        memory = with_scopes(memory_where(memory, np.array([row.first for row in rows])), Params)
        if not explore:
            choice = self._policy.greedy(observations, memory)
        else:
            noise = np.concatenate([row.noise.next() for row in rows])
            progress = min(1.0, self.steps / self._total)
            rate = self.algorithm.exploration(progress, np.asarray(ids), max(self._plan.envs, 1 + max(ids, default=0)))
            choice = self._policy.act(observations, memory, noise, np.full(count, rate, np.float32))
        for i, row in enumerate(rows):
            obs, action, extras, before, after = map_leaves(
                lambda x, i=i: np.array(x[i : i + 1]),
                (observations, choice.action, choice.extras, memory, choice.memory),
            )
            row.memory, row.first = with_scopes(after, Params), False
            row.open = (obs, Acted(action, extras, before, self._policy.version)) if explore else None
        return self._outward(count)(self.algorithm.to_env(np.asarray(choice.action)))

    def _row(self, env_id: int) -> _Row:
        if env_id not in self._rows:
            self._rows[env_id] = _Row(self.algorithm, self._policy, self._seed, env_id)
        return self._rows[env_id]

    def observe(
        self, reward: float, next_obs: Tree, terminated: bool = False, truncated: bool = False, env_id: int = 0
    ) -> None:
        """What the last action in environment ``env_id`` led to; ``next_obs`` is the true successor, never a reset."""
        row = self._rows.get(env_id)
        if not self._plan.acts:
            raise DataError(f"{self.algorithm.name} learns from its data set alone; nothing is to be observed.")
        if row is None or row.open is None or row.accumulator is None:
            raise DataError(f"env_id={env_id} has no open action; call act(…, env_ids=[…]) for it first.")
        if not np.isfinite(reward):
            raise DataError(f"env_id={env_id}: the reward {reward!r:.60} arrived; one finite number was expected.")
        if env_id in self._chunks:
            waiting = [other for other in range(self._plan.envs) if other not in self._chunks]
            remedy = f"environments {waiting} must catch up first" if waiting else "call update() first"
            raise DataError(f"environment {env_id} has a whole rollout; {remedy}.")
        successor = self._given.fitting(map_leaves(lambda x: np.asarray(x)[None], next_obs), "next_obs")
        over, cut = np.array([bool(terminated)]), np.array([bool(truncated)])
        step = Step(successor, np.array([reward], np.float32), over, cut, successor, np.array([True]))
        bootstrap = None
        if cut[0] and not over[0] and row.accumulator.bootstraps:
            bootstrap = self._policy.values(successor, row.memory)
        row.accumulator.add(*row.open, step, bootstrap)
        row.open, row.first = None, bool(over[0] or cut[0])
        self.steps += 1
        if row.accumulator.full:
            self._chunks[env_id] = row.accumulator.take()
            if not self._feed.whole or len(self._chunks) == self._plan.envs:
                self._feed.add([self._chunks[i] for i in sorted(self._chunks)])
                if not self._feed.whole:
                    self._chunks = {}

    def update(self, batch: Tree | None = None) -> dict[str, float] | None:
        """Learn from ``batch``, or from what was observed; None where that is not enough yet."""
        progress = min(1.0, self.steps / self._total)
        if batch is not None:
            space = self._plan.batch_space(self.algorithm.step_spaces)
            missing = {name: np.ones_like(batch["reward"]) for name in ("weight", "mask") if name in space.spaces}
            self._learner.update({**missing, **batch}, progress)
        elif not self._enough():
            return None
        else:
            for drawn in self._feed.batches(Round(progress, 1)):
                self._learner.update(drawn.data, progress)
                self._feed.lent(drawn, self._learner.ticket())
                if self._plan.prioritizes:
                    self._feed.learned(drawn, self._learner.priorities())
            self._chunks = {}
        self._policy.load(self._acting(), self._learner.version)
        return self._learner.metrics()

    def _enough(self) -> bool:
        if self._feed.whole:
            return len(self._chunks) == self._plan.envs
        return self._feed.ready and self._plan.enough(self.steps)

    def _acting(self) -> Params:
        return acting_part(self._learner.graph.assembly, self._learner.weights())

    def get_weights(self) -> Params:
        """The parameters, as NumPy arrays."""
        return self._learner.weights()

    def set_weights(self, weights: Tree) -> None:
        """Take over parameters, of this or another backend; the optimiser starts anew."""
        self._learner.load_weights(self._learner.fitted(weights))
        self._policy.load(self._acting(), self._learner.version)

    def save(self, path: str | Path) -> Path:
        """Write what was learned (parameters, optimiser, targets, steps) to a directory; observations are not kept."""
        path = Path(path)
        state = {"learner": self._learner.state(), "steps": self.steps}
        return checkpoint.save(path.parent, path.name, state, {"algo": self.algorithm.name})

    def load(self, path: str | Path) -> None:
        """Go on from what ``save`` wrote."""
        state, meta = checkpoint.load(Path(path))
        if meta.get("algo") != self.algorithm.name:
            raise ConfigError(f"{path} was saved by {meta.get('algo')!r}; this agent is {self.algorithm.name!r}.")
        try:
            self._learner.restore(state["learner"])
            self.steps = int(state["steps"])
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"{path} does not hold what an agent saves: {error!s:.200}.") from error
        self._policy.load(self._acting(), self._learner.version)
