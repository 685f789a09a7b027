"""How long the parts of a run take on this machine: env step, inference, update, transport, each timed by itself."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from starling.algorithms.base import Algorithm
from starling.backends import available, get_backend
from starling.components.graph.assembly import Assembly
from starling.components.graph.build import Graph, build
from starling.core.machine import processors
from starling.core.segments import Segment
from starling.core.trees import Tree, items
from starling.envs import make
from starling.experience.plan import Accumulator
from starling.experiments.backends import limit_threads
from starling.experiments.config import Run
from starling.experiments.program import assemble_for
from starling.roles.acting import LocalActing
from starling.roles.collector import Collector, Exploring, blank_about
from starling.roles.learner import Learner
from starling.roles.policy import Policy

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
        replays=bench.plan.replays,
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
        self.steps_per_update = float(self.plan.boundary(0) or self.plan.batch_rows)
        blank = self._accumulator(self.envs).blank()
        self.length = CHUNK if self.plan.replays else max(1, self.plan.batch_rows // self.envs)
        self.blank: Tree = {"data": blank, "about": blank_about()}
        self._rng = np.random.default_rng(run.options.seed)

    def _make(self, rows: int) -> Any:
        return make(self.run.options.env, rows, self.run.options.seed, **self.run.options.env_options)

    def _graph(self, backend: str) -> Graph:
        limit_threads(self.assembly, backend)
        return build(self.assembly, get_backend(backend), self.run.options.seed)

    def _policy(self, backend: str) -> Policy:
        return Policy(self._graph(backend))

    def _accumulator(self, rows: int) -> Accumulator:
        return self.plan.accumulator(self.algorithm.step_spaces, rows, CHUNK)

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
        noise, explore = self.algorithm.act_noise(self._rng, (rows,)), np.ones(rows, np.float32)
        memory = policy.no_memory(rows)
        mean, calls, first = repeat(lambda: policy.act(obs, memory, noise, explore), seconds)
        return Timed("inference", backend, rows, mean, calls, first, rows)

    def acting(self, backend: str, rows: int, seconds: float) -> Timed:
        """One step of an actor: the environments, the policy, and putting it all together."""
        policy = self._policy(backend)
        with self._make(rows) as envs:
            collector = self._collector(policy, envs)
            mean, calls, first = repeat(lambda: _here(collector.collect()), seconds)
        return Timed("acting", backend, rows, mean / self.length, calls, first, rows)

    def _collector(self, policy: Policy, envs: Any) -> Collector:
        acting, seed = LocalActing(policy, envs.count), self.run.options.seed
        exploring = Exploring(self.algorithm, np.arange(envs.count), envs.count, self.run.options.steps)
        return Collector(acting, envs, self._accumulator(envs.count), self.algorithm, exploring, seed)

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
        feed = self.plan.feed(self.algorithm.step_spaces, 1, self.run.options.seed)
        with self._make(self.envs) as envs:
            collector = self._collector(self._policy("numpy"), envs)
            seen = 0
            while seen < self.plan.batch_rows:  # the first update needs so many; their number is what takes time
                feed.add([_here(collector.collect())["data"]])
                seen = collector.steps
        due = next(iter(self.plan.cadence(10**9).due(10**8)))

        def call() -> None:
            for batch in feed.batches(due):
                learner.update(batch.data, due.progress, batch.updates)
                feed.lent(batch, learner.ticket())
                if self.plan.prioritizes:
                    feed.learned(batch, learner.priorities())

        return call

    def transport(self, seconds: float) -> Timed:
        """A chunk of all environments, through shared memory."""
        flat = [(path, np.asarray(leaf)) for path, leaf in items(self.blank)]
        segment = Segment([(path, leaf.shape, leaf.dtype.str) for path, leaf in flat])

        def call() -> None:
            for path, leaf in flat:
                np.copyto(segment.arrays[path], leaf)

        try:
            mean, calls, first = repeat(call, seconds)
        finally:
            segment.close()
        size = sum(leaf.nbytes for _, leaf in flat) / 1e3
        return Timed("transport", "", self.envs, mean, calls, first, self.envs * self.length, size)


def _here(code: Generator[Any, Any, Any]) -> Any:
    """The result of code that asks nothing of others."""
    try:
        effect = next(code)
    except StopIteration as stop:
        return stop.value
    raise TypeError(f"{effect!r:.80} cannot be carried out here: nobody else runs")
