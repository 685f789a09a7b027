"""How long the parts of a run take on this machine: env step, inference, update, transport, each timed by itself."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from starling.algorithms.base import Algorithm
from starling.algorithms.plans import Replay, Rollouts
from starling.backends import available, get_backend
from starling.components.graph.assembly import Assembly
from starling.components.graph.build import Graph, build, create_parameters
from starling.core.machine import processors
from starling.core.params import Params
from starling.core.trees import Tree, items, map_leaves
from starling.envs import make
from starling.executors.shared_edges import Ring
from starling.experiments.backends import limit_threads
from starling.experiments.config import Run
from starling.experiments.training import assemble_for
from starling.roles.chunks import StepCollector, blank_chunk
from starling.roles.collectors import RolloutCollector, without_waiting
from starling.roles.learner import Learner
from starling.roles.policy import ACTING, Policy
from starling.roles.replay import learn_round, table_for

__all__ = ["Timed", "Timings", "time_parts"]

CHUNK = 32  # steps of each environment in a chunk of transitions
LEARNING = ("jax", "torch")


@dataclass(frozen=True)
class Timed:
    """One measurement."""

    part: str  # env, inference, acting, update or transport
    backend: str  # "" where none is used
    rows: int  # environments that step together
    seconds: float  # the mean of its calls, without the first
    calls: int
    first: float  # the first call, which may compile
    steps: float  # environment steps that a call stands for
    kilobytes: float = 0.0  # that a call moves


@dataclass(frozen=True, kw_only=True)
class Timings:
    """What an advice is made of: seconds by part."""

    envs: int  # environments of the run, over all its actors
    length: int  # steps of each in a rollout or chunk
    replays: bool
    cores: int
    env: dict[int, float]  # rows -> seconds of one step of them all
    inference: dict[str, dict[int, float]]  # backend -> rows -> seconds
    acting: dict[int, float]  # rows -> seconds of one step, with inference and bookkeeping
    update: dict[str, float]  # backend -> seconds of a round of updates
    steps_per_update: float  # environment steps between rounds of updates
    transport: float  # seconds to send a chunk of all environments and take it
    load: float = 0.0  # processors that others used when timing began
    parts: tuple[Timed, ...] = field(default=(), repr=False)


def time_parts(run: Run, seconds: float, heard: Callable[[Timed], None] = lambda timed: None) -> Timings:
    """Time every part for a fraction of ``seconds``; compiling comes on top. ``heard`` is told as results come."""
    load = os.getloadavg()[0]
    with make(run.options.env, 1, run.options.seed, **run.options.env_options) as envs:
        assembly = assemble_for(run, envs.observation_space, envs.action_space)
    bench = _Bench(run, assembly)
    sizes = sorted({1, bench.envs})
    learning = [name for name in LEARNING if name in available()]
    each = seconds / (2 * len(sizes) + len(sizes) * len(available()) + len(learning) + 1)
    parts: list[Timed] = []

    def note(timed: Timed) -> None:
        parts.append(timed)
        heard(timed)

    for rows in sizes:
        note(bench.env_step(rows, each))
    for backend in available():
        for rows in sizes:
            note(bench.inference(backend, rows, each))
    inference = {
        backend: {timed.rows: timed.seconds for timed in parts if timed.backend == backend} for backend in available()
    }
    fastest = min(available(), key=lambda backend: inference[backend][bench.envs])
    for rows in sizes:
        note(bench.acting(fastest, rows, each))
    for backend in learning:
        note(bench.update(backend, each))
    note(bench.transport(each))

    def by_rows(part: str) -> dict[int, float]:
        return {timed.rows: timed.seconds for timed in parts if timed.part == part}

    updates = {timed.backend: timed.seconds for timed in parts if timed.part == "update"}
    return Timings(
        envs=bench.envs,
        length=bench.length,
        replays=isinstance(bench.plan, Replay),
        cores=processors(),
        env=by_rows("env"),
        inference=inference,
        acting=by_rows("acting"),
        update=updates,
        steps_per_update=bench.steps_per_update,
        transport=parts[-1].seconds,
        load=load,
        parts=tuple(parts),
    )


def repeat(call: Callable[[], Any], seconds: float) -> tuple[float, int, float]:
    """Call for about so long, twice at least: the mean, the number of calls, and how long the first one took.

    The mean and not the median: a rare slow call, as when episodes end or others take the processor, slows runs too.
    """
    before = time.perf_counter()
    call()
    first = time.perf_counter() - before
    taken: list[float] = []
    until = time.perf_counter() + seconds
    while not taken or time.perf_counter() < until:
        before = time.perf_counter()
        call()
        taken.append(time.perf_counter() - before)
    return statistics.fmean(taken), len(taken), first


class _Bench:
    """The parts of a run, ready to be timed."""

    def __init__(self, run: Run, assembly: Assembly) -> None:
        self.run, self.assembly = run, assembly
        self.algorithm: Algorithm = assembly.root  # type: ignore[assignment]
        self.plan, self.envs = self.algorithm.plan, int(run.algorithm.envs)
        self.length = self.plan.length if isinstance(self.plan, Rollouts) else CHUNK
        if isinstance(self.plan, Rollouts):
            self.steps_per_update = float(self.plan.length * self.envs)
        else:
            self.steps_per_update = float(self.plan.every)
        self._rng = np.random.default_rng(run.options.seed)

    def _make(self, rows: int) -> Any:
        return make(self.run.options.env, rows, self.run.options.seed, **self.run.options.env_options)

    def _graph(self, backend: str) -> Graph:
        limit_threads(self.assembly, backend)
        return build(self.assembly, get_backend(backend), self.run.options.seed)

    def _policy(self, backend: str) -> Policy:
        params = create_parameters(self.assembly, self.run.options.seed)
        policy = Policy(self._graph(backend))
        policy.load(Params({scope: params[scope] for scope in self.assembly.scopes_read_by(*ACTING)}), 0)
        return policy

    def env_step(self, rows: int, seconds: float) -> Timed:
        space = self.algorithm.action_space.ranked(batch=True)
        with self._make(rows) as envs:
            envs.reset()
            actions = self._forever([self.algorithm.to_env(space.sample(self._rng, (rows,))) for _ in range(64)])
            mean, calls, first = repeat(lambda: envs.step(next(actions)), seconds)
        return Timed("env", "", rows, mean, calls, first, rows)

    @staticmethod
    def _forever(values: list[Any]) -> Iterator[Any]:
        while True:
            yield from values

    def inference(self, backend: str, rows: int, seconds: float) -> Timed:
        policy = self._policy(backend)
        with self._make(rows) as envs:
            obs = envs.reset()
        noise, explore = self.algorithm.act_noise(self._rng, (rows,)), self.algorithm.exploration(0)
        mean, calls, first = repeat(lambda: policy.act(obs, noise, explore), seconds)
        return Timed("inference", backend, rows, mean, calls, first, rows)

    def acting(self, backend: str, rows: int, seconds: float) -> Timed:
        """One step of an actor: the environments, the policy, and putting it all together."""
        policy = self._policy(backend)
        with self._make(rows) as envs:
            gather = self._gatherer(policy, envs)
            mean, calls, first = repeat(lambda: without_waiting(gather()), seconds)
        return Timed("acting", backend, rows, mean / self.length, calls, first, rows)

    def _gatherer(self, policy: Policy, envs: Any) -> Callable[[], Any]:
        if isinstance(self.plan, Rollouts):
            return RolloutCollector(policy, envs, self.run.options.seed).gather
        return StepCollector(policy, envs, self.run.options.seed, self.length).gather

    def update(self, backend: str, seconds: float) -> Timed:
        """A round of updates on real experience, and the weights that are sent to actors after it."""
        learner = Learner(self._graph(backend), self.run.options.seed)
        learn = self._round(learner)

        def call() -> None:
            learn()
            learner.acting_weights()  # waits for what the backend still computes

        mean, calls, first = repeat(call, seconds)
        return Timed("update", backend, self.envs, mean, calls, first, self.steps_per_update)

    def _round(self, learner: Learner) -> Callable[[], None]:
        policy = self._policy("numpy")
        plan = self.plan
        if isinstance(plan, Rollouts):
            with self._make(self.envs) as envs:
                batch = RolloutCollector(policy, envs, self.run.options.seed).collect()
            return lambda: learner.update(batch, batch["reward"].size)
        table = table_for(self.algorithm, self.run.options.seed)
        rows = self._transitions(policy)
        del rows["priority"]
        while len(table) < max(plan.min_size, plan.batch_size):  # the same ones again: their number is what takes time
            table.insert(rows)
        return lambda: learn_round(learner, table, plan)

    def _transitions(self, policy: Policy) -> dict[str, Any]:
        """Some transitions of this environment."""
        with self._make(self.envs) as envs:
            gather = self._gatherer(policy, envs)
            while True:
                rows = dict(without_waiting(gather()))
                if len(rows["priority"]):
                    return rows

    def transport(self, seconds: float) -> Timed:
        """A chunk of all environments, through shared memory."""
        blank: Tree = blank_chunk(self.algorithm, self.envs, self.length)
        item = map_leaves(np.array, blank)
        ring = Ring("experience", blank, 1, 1)

        def call() -> None:
            ring.put(item)
            ring.take(True)

        try:
            mean, calls, first = repeat(call, seconds)
        finally:
            ring.segment.close()
        size = sum(np.asarray(leaf).nbytes for _, leaf in items(blank)) / 1e3
        return Timed("transport", "", self.envs, mean, calls, first, self.envs * self.length, size)
