"""Gradients that travel: parameter servers, and workers that act and compute gradients."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from starling.algorithms.compiled.learner import GradientLearner
from starling.algorithms.compiled.policy import Policy
from starling.algorithms.compiled.shards import merged, part_of, shards_of
from starling.backends import get_backend
from starling.components.graph.build import build
from starling.core.effects import Effect, Interrupted, Latest, Publish, Put, Report, RoleCode, Take
from starling.core.trees import Tree, leaves, map_leaves
from starling.experience.cadence import Cadence
from starling.experience.plan import Feed
from starling.formations import RoleId, Start
from starling.roles.acting import LocalActing
from starling.roles.actors import collector_of
from starling.roles.collector import Collector
from starling.roles.context import Context
from starling.roles.run_counters import Reporter, RunCounters, Tally

__all__ = ["make_server", "make_worker", "parameter_server", "worker"]

REPORT_EVERY = 50  # pushes between a worker's reports


def parameter_server(who: GradientLearner, counters: RunCounters, fresh: bool) -> RoleCode:
    """Applies the gradients of workers to its shard of the parameters, in the order in which they come."""

    def state() -> Tree:
        return {"learner": who.state(), "counters": counters.state()}

    def report() -> tuple[dict[str, float], dict[str, Any]]:
        return {"updates": who.version}, {}

    def publication() -> Publish:
        return Publish("weights", {**who.view(), "steps": np.int64(counters.steps)}, who.version)

    yield publication()
    if fresh:
        yield counters.checkpoint(state)
    while not counters.done:
        try:
            item = (yield Take(("gradients",), borrow=True)).item
        except Interrupted:
            break
        counters.accept(item["about"], who.version)
        counters.note_lag(who.version - int(item["about"]["version"]))
        who.apply(item["gradients"], float(item["progress"]))
        who.version += 1
        if item["last"] and leaves(item["statistics"]):
            who.absorb(item["statistics"])
        yield publication()
        yield from counters.agree(True)
        yield from counters.report(report, state)
    yield from counters.report(report, state, last=True)
    return who.weights()


def worker(
    who: GradientLearner,
    acting: WorkerActing,
    join: Any,
    feed: Feed,
    cadence: Cadence,
    shards: list[set[str]],
    report: Reporter,
    pushed: int,
) -> RoleCode:
    """Acts, computes gradients, and sends to every server those of its shard; ``pushed`` is how often it did before."""
    collector: Collector = join((yield from acting.pull(pushed)))
    tally, prioritizes = Tally(), who.plan.prioritizes
    while True:
        chunk = yield from collector.collect()
        feed.add([chunk["data"]])
        tally.add(chunk["about"])
        for round in cadence.due(collector.run_steps, feed.ready):
            for batch in feed.batches(round):
                for data in batch.each():
                    statistics = who.statistics(data)
                    for gradients, _, last in who.gradient_steps(data, round.progress):
                        if len(shards) > 1:  # a single server sees all of them, and clips by itself
                            gradients = who.clipped(gradients)
                        counted = tally if last else Tally()
                        counted.version = acting.policy.version
                        about = counted.take()
                        for server, shard in enumerate(shards):
                            message = {
                                "gradients": part_of(gradients, shard),
                                "statistics": statistics if server == 0 else {},
                                "progress": np.float32(round.progress),
                                "last": np.bool_(last),
                                "about": about,
                            }
                            yield Put("gradients", message, to=server)
                        pushed += 1
                        yield from acting.pull(pushed)
                        if pushed % REPORT_EVERY == 0:
                            values, histograms = report()
                            del values["updates"]  # the servers know
                            yield Report(-1, values, histograms)
                if prioritizes:
                    feed.learned(batch, who.priorities())


class WorkerActing(LocalActing):
    """Acts with the weights that the worker learns with, which it pulls from all servers after each push."""

    def __init__(self, policy: Policy, rows: int, who: GradientLearner, servers: int) -> None:
        super().__init__(policy, rows)
        self._who, self._servers = who, servers

    def pull(self, pushed: int) -> Generator[Effect, Any, int]:
        """The state after so many pushes of its own; the steps that the run has taken."""
        parts = []
        for server in range(self._servers):
            parts.append((yield Latest("weights", after=pushed + 1, sender=server)))
        view = merged([part.value for part in parts])
        steps = int(view.pop("steps"))
        self._who.see(view)
        self.policy.load(view["params"], min(part.version for part in parts))
        return steps


def make_server(context: Context, role: RoleId, start: Start) -> RoleCode:
    """A shard of the parameters."""
    who = GradientLearner(context.learning_graph(role), context.seed, shard=_shards(context)[role.index])
    counters = RunCounters(context.length)
    state = context.restored(role, start)
    if state is not None:
        who.restore(state["learner"])
        counters.restore(state["counters"])
    return parameter_server(who, counters, fresh=state is None)


def make_worker(context: Context, role: RoleId, start: Start) -> RoleCode:
    """Acts and computes gradients."""
    workers, plan = context.formation.count(role.kind), context.plan
    who = GradientLearner(context.learning_graph(role), context.seed, context.summaries, role.index)
    acting = WorkerActing(context.policy(role), context.envs_per_actor, who, context.formation.count("server"))
    return worker(
        who,
        acting,
        collector_of(context, role, start, acting),
        plan.feed(context.algorithm.step_spaces, 1, context.seed, role.index),
        plan.cadence(context.length.total, workers),
        _shards(context),
        context.reporter(who),
        start.sent,
    )


def _shards(context: Context) -> list[set[str]]:
    """The parameters that each server holds."""
    sizes = {path: int(np.prod(spec.shape)) for path, spec in context.assembly.parameters.items()}
    return shards_of(sizes, context.formation.count("server"))


def blank_views(context: Context) -> list[Tree]:
    """What each server publishes."""
    graph = build(context.assembly, get_backend("numpy"), context.seed)
    learners = (GradientLearner(graph, context.seed, shard=shard) for shard in _shards(context))
    return [{**learner.view(), "steps": np.int64(0)} for learner in learners]


def blank_pushes(context: Context) -> list[Tree]:
    """What workers send to each server."""
    algorithm: Any = context.algorithm
    batch = context.plan.batch_space(algorithm.step_spaces)
    statistics = map_leaves(np.asarray, algorithm.observe(batch.zeros_with({"time": 1, "batch": 1})))
    rest = {"progress": np.float32(0), "last": np.bool_(False), "about": Tally().take()}
    return [
        {"gradients": algorithm.moving(view["params"]), "statistics": statistics if i == 0 else {}, **rest}
        for i, view in enumerate(blank_views(context))
    ]
