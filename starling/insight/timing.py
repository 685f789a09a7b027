"""How long the parts of a run take on this machine: env step, inference, acting, update, transport, each by itself.

What is timed is what runs: the collector, the round of a learner, the queue between them; only nobody waits for others.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from starling.backends import available
from starling.components.networks.modules import required_backend
from starling.core.effects import RoleCode
from starling.core.errors import ConfigError
from starling.core.lockfree import Pool
from starling.core.machine import time_calls
from starling.core.trees import Tree, leaves
from starling.envs import make
from starling.executors.base import Running
from starling.experiments.config import Run, RunOptions
from starling.experiments.program import Program
from starling.formations import RoleId, Start
from starling.roles.acting import LocalActing
from starling.roles.actors import CHUNK
from starling.roles.collector import Collector
from starling.roles.learning import learn_round, learning_of

__all__ = ["Timed", "programs_of", "time_parts"]

LEARNING = ("jax", "torch")
ROLE = RoleId("learner", 0)  # the one of ``single``, which acts as well


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

    @property
    def per_step(self) -> float:
        """Seconds for each environment step."""
        return self.seconds / self.steps


def time_parts(programs: Mapping[str, Program], seconds: float) -> Iterator[Timed]:
    """Each part as it is timed, for a fraction of ``seconds``; compiling comes on top. See ``programs_of``."""
    any_of = next(iter(programs.values()))
    sizes, learning = sorted({1, any_of.plan.envs}), [name for name in LEARNING if name in programs]
    each = seconds / (2 * len(sizes) + len(sizes) * len(programs) + len(learning) + 1)
    for rows in sizes:
        yield _env_step(any_of, rows, each)
    inference = {}
    for backend, program in programs.items():
        for rows in sizes:
            inference[backend] = _inference(program, backend, rows, each)
            yield inference[backend]
    fastest = min(programs, key=lambda backend: inference[backend].seconds)
    for rows in sizes:
        timed, chunks = _acting(programs[fastest], fastest, rows, each)
        yield timed
    for backend in learning:
        yield _update(programs[backend], backend, chunks, each)
    yield _transport(chunks[-1], sizes[-1], each)


def programs_of(run: Run) -> dict[str, Program]:
    """By backend, the run in one role that acts with it and, where it can, learns with it."""
    o, kept = run.options, ("algo", "env", "steps", "seed", "env_options", "env_workers")
    with make(o.env, 1, o.seed, **o.env_options) as envs:
        spaces = envs.observation_space, envs.action_space
    found = {}
    for name in available():
        given: dict[str, Any] = {"act_backend": name, "backend": name if name in LEARNING else "auto"}
        options = RunOptions(**given, **{each: getattr(o, each) for each in kept})
        found[name] = Program(replace(run, options=options), spaces=spaces)
        if not found[name].plan.acts:
            raise ConfigError(f"{o.algo} learns from a data set, and nobody acts: it runs in the formation single.")
    needed = required_backend(found["numpy"].algorithm)
    return {needed: found[needed]} if needed else found


def _env_step(program: Program, rows: int, seconds: float) -> Timed:
    """A step of the environments alone, with random actions."""
    algorithm, rng = program.algorithm, np.random.default_rng(program.seed)
    space = algorithm.action_space.ranked(batch=True)
    actions = itertools.cycle([algorithm.to_env(space.sample(rng, (rows,))) for _ in range(64)])
    with program.envs(rows, "actor", 0) as envs:
        envs.reset()
        return Timed("env", "", rows, *time_calls(lambda: envs.step(next(actions)), seconds), rows)


def _inference(program: Program, backend: str, rows: int, seconds: float) -> Timed:
    """A call of the policy alone, with the first observations."""
    policy, rng = program.policy(ROLE), np.random.default_rng(program.seed)
    with program.envs(rows, "actor", 0) as envs:
        obs = envs.reset()
    given = obs, policy.no_memory(rows), policy.algorithm.act_noise(rng, (rows,)), np.ones(rows, np.float32)
    return Timed("inference", backend, rows, *time_calls(lambda: policy.act(*given), seconds), rows)


def _acting(program: Program, backend: str, rows: int, seconds: float) -> tuple[Timed, deque[Tree]]:
    """A step of an actor that runs ahead: environments, policy and bookkeeping; and the last chunks, for a learner."""
    algorithm, chunks = program.algorithm, deque[Tree](maxlen=program.batch_chunks)
    acting = LocalActing(program.policy(ROLE), rows)
    accumulator = program.plan.accumulator(algorithm.step_spaces, rows, CHUNK)
    with program.envs(rows, "actor", 0) as envs:
        collector = Collector(acting, envs, accumulator, algorithm, program.length.total, program.seed)
        mean, calls, first = time_calls(lambda: chunks.append(_alone(collector.collect())), seconds)
    length = collector.steps / (calls + 1) / rows
    return Timed("acting", backend, rows, mean / length, calls, first, rows), chunks


def _update(program: Program, backend: str, chunks: Iterable[Tree], seconds: float) -> Timed:
    """A round of updates on real experience, and the weights that are sent to actors after it."""
    learning, supply, steps = learning_of(program, ROLE, Start()), itertools.cycle(chunks), 0
    while steps < program.plan.batch_rows:  # so many the first update needs; it is their number that takes time
        taken = list(itertools.islice(supply, learning.feed.chunks))
        learning.feed.add([chunk["data"] for chunk in taken])
        batch = sum(int(chunk["about"]["steps"]) for chunk in taken)
        steps += batch
    due = next(learning.cadence.due(10**9))

    def call() -> None:
        _alone(learn_round(learning.who, learning.feed, due, learning.counters))
        learning.publication()  # waits for what the backend still computes

    between = program.plan.boundary(0) or batch  # steps from one round to the next
    return Timed("update", backend, program.plan.envs, *time_calls(call, seconds), between)


def _transport(chunk: Tree, rows: int, seconds: float) -> Timed:
    """A chunk of all environments, through the queue between two processes."""
    pool = Pool("experience", chunk, senders=[0], depth=1)

    def call() -> None:
        pool.lanes[0].put(chunk)
        pool.lanes[0].take(borrow=True)

    with closing(pool.segment):
        measured = time_calls(call, seconds)
    size = sum(np.asarray(leaf).nbytes for leaf in leaves(chunk)) / 1e3
    return Timed("transport", "", rows, *measured, int(chunk["about"]["steps"]), size)


def _alone(code: RoleCode) -> Any:
    """The result of code that asks nothing of others."""
    running = Running(code)
    effect = running.resume()
    assert effect is None, f"{effect!r:.80} cannot be carried out here: nobody else runs"
    return running.result
