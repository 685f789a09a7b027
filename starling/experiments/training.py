"""A run in one process: collect, learn, and be able to stop and go on exactly."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from starling.algorithms import get_algorithm
from starling.algorithms.base import Algorithm, inputs_of
from starling.algorithms.plans import Replay
from starling.backends import get_backend
from starling.components.graph.assembly import Assembly, assemble
from starling.components.graph.build import Graph, build
from starling.core.params import Params, with_scopes
from starling.core.spaces import Space
from starling.core.trees import Tree
from starling.envs import EnvLike, Envs, make
from starling.experiments.backends import choose_backends, limit_threads
from starling.experiments.config import Run
from starling.experiments.summaries import check_summaries, component_patterns
from starling.roles.collectors import Collector, RolloutCollector, TransitionCollector
from starling.roles.learner import Learner
from starling.roles.policy import Policy
from starling.roles.replay import learn_round, table_for

if TYPE_CHECKING:
    from starling.data import Table

__all__ = ["Training", "assemble_for"]


def assemble_for(run: Run, obs: Space, action: Space) -> Assembly:
    """The run's algorithm, assembled for these spaces."""
    algorithm = get_algorithm(run.options.algo)
    composed = algorithm.compose(run.algorithm, obs, action, run.algorithm.envs, run.options.steps)
    return assemble(composed, inputs_of(composed))


class Training:
    """Collects and learns, one round at a time.

    while training.steps < total:
        training.round()
    """

    def __init__(self, run: Run, env: EnvLike | None = None) -> None:
        """``env`` is what to make the environments from where a name is not enough."""
        options = run.options
        self.run = run
        self.env: EnvLike = options.env if env is None else env
        self.envs: Envs = make(self.env, run.algorithm.envs, options.seed, **options.env_options)
        assembly = assemble_for(run, self.envs.observation_space, self.envs.action_space)
        check_summaries(options.algo, options.summaries, assembly)
        self.backends = choose_backends(assembly, options.backend, options.act_backend)
        for backend in (self.backends.act, self.backends.learn):
            limit_threads(assembly, backend)
        self.graph = build(assembly, get_backend(self.backends.learn), options.seed, options.devices)
        self.algorithm: Algorithm = assembly.root  # type: ignore[assignment]
        patterns = component_patterns(options.algo, options.summaries)
        self.learner = Learner(self.graph, options.seed, patterns, self.algorithm.plan.overlap)
        acting = (
            self.graph if self.backends.act == self.backends.learn else _build_for(assembly, self.backends.act, run)
        )
        self.policy = Policy(acting)
        self.recent: deque[float] = deque(maxlen=100)  # returns of the last episodes
        self.episodes = 0
        self.table: Table | None = None
        self.plan = plan = self.algorithm.plan
        self.collector: Collector
        if isinstance(plan, Replay):
            self.table = table_for(self.algorithm, options.seed)
            self.collector = TransitionCollector(self.policy, self.envs, options.seed, self.table)
            self._due = plan.every  # environment steps at which the next round of updates falls
        else:
            self.collector = RolloutCollector(self.policy, self.envs, options.seed)

    @property
    def steps(self) -> int:
        return self.collector.steps

    def round(self) -> None:
        """The smallest whole piece of work: one rollout and its update, or one step and what updates it makes due."""
        if isinstance(self.collector, RolloutCollector):
            batch = self.collector.collect()
            self._learn(lambda: self.learner.update(batch, batch["reward"].size))
        else:
            assert isinstance(self.collector, TransitionCollector)
            assert isinstance(self.plan, Replay)
            self.collector.collect()
            if self.collector.steps >= self._due:
                self._due += self.plan.every
                self._learn_from_table(self.plan)
        if self.collector.episodes:
            for episode in self.collector.take_episodes():
                self.recent.append(episode.ret)
                self.episodes += 1

    def _learn_from_table(self, plan: Replay) -> None:
        table = self.table
        assert table is not None
        if len(table) >= plan.min_size:
            self._learn(lambda: learn_round(self.learner, table, plan))

    def _learn(self, update: Callable[[], None]) -> None:
        """Update, and act with the new weights; where both overlap, with those from before this update, because
        waiting for it would leave nothing to overlap."""
        version, last = self.learner.version, self.learner.acting_weights_later() if self.plan.overlap else None
        update()
        if last is None:
            self.policy.load(self.learner.acting_weights(), self.learner.version)
        else:
            self.policy.load(last(), version)

    def metrics(self) -> dict[str, float]:
        """What to report now."""
        name = self.run.options.algo
        values = {f"{name}.{key}": value for key, value in self.learner.metrics().items()}
        if self.recent:
            values["episode_return"] = float(np.mean(self.recent))
        values |= {"episodes": self.episodes, "updates": self.learner.version}
        values["explore"] = self.algorithm.exploration(self.steps)
        return values

    def state(self) -> Tree:
        """Everything needed to go on exactly."""
        state = {
            "learner": self.learner.state(),
            "collector": self.collector.state(),
            "recent": list(self.recent),
            "episodes": self.episodes,
            "acting": self.policy.weights,
        }
        if self.table is not None:
            state |= {"table": self.table.state(), "due": self._due}
        return state

    def restore(self, state: Tree) -> None:
        """Go back to ``state``; ``envs.exact_resume`` tells whether that was possible exactly."""
        self.learner.restore(state["learner"])
        self.collector.restore(state["collector"])
        self.recent.extend(float(x) for x in state["recent"])
        self.episodes = int(state["episodes"])
        if self.table is not None:
            self.table.restore(state["table"])
            self._due = int(state["due"])
        self.policy.load(with_scopes(state["acting"]["params"], Params), int(state["acting"]["version"]))

    def close(self) -> None:
        self.envs.close()


def _build_for(assembly: Assembly, backend: str, run: Run) -> Graph:
    return build(assembly, get_backend(backend), run.options.seed)
