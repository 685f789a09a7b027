"""The role that learns from the chunks of actors: alone, in a group that averages gradients, or with no actors."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from starling.algorithms.compiled.learner import GradientLearner, Learner
from starling.algorithms.compiled.policy import acting_part
from starling.core.effects import AllReduce, Effect, Interrupted, Publish, RoleCode, Take
from starling.core.params import Params, with_scopes
from starling.core.trees import Tree, leaves, map_leaves
from starling.experience.cadence import Cadence, Round
from starling.experience.plan import Batch, Feed
from starling.formations import RoleId, Start
from starling.maths.normalisation import moments_from_sums, sums_of_moments
from starling.roles.context import Context
from starling.roles.run_counters import Reporter, RunCounters

__all__ = [
    "Learning",
    "blank_agreement",
    "blank_gradients",
    "blank_statistics",
    "blank_weights",
    "chunks_of_actors",
    "learn",
    "learn_round",
    "learner",
    "learning_of",
    "make_learner",
    "no_chunks",
]

BATCHES = 16  # updates in a row of a learner without actors, between looks at what else there is to do


class Learning:
    """What a learner consists of, and what is kept of it."""

    def __init__(
        self,
        who: Learner,
        feed: Feed,
        cadence: Cadence,
        counters: RunCounters,
        report: Reporter,
        overlap: bool = False,
        publish_every: int = 1,
    ) -> None:
        """Weights are published whenever ``publish_every`` updates were made."""
        self.who, self.feed, self.cadence, self.counters, self.report = who, feed, cadence, counters, report
        self.publish_every, self._overlap = publish_every, overlap
        self.restored: Tree = None  # what it goes on from; None where it begins
        self._published: Tree = None  # with overlap, the weights that were published last, from before the last update

    def publication(self) -> Publish:
        """The acting weights of now."""
        if self._published is not None:
            value, version = self._published
            return Publish("weights", value, version)
        weights = {"params": self.who.acting_weights(), "steps": np.int64(self.counters.steps)}
        return Publish("weights", weights, self.who.version)

    def promise(self) -> None:
        """With overlap: the weights of now are what is published next, whatever is learned until then."""
        if self._overlap:
            later, steps = self.who.promised_weights(), np.int64(self.counters.steps)
            self._published = (lambda: {"params": later(), "steps": steps}), self.who.version

    def state(self) -> Tree:
        """Everything needed to go on."""
        state = {"learner": self.who.state(), "feed": self.feed.state(), "cadence": self.cadence.state()}
        if self._published is not None:
            value, version = self._published
            value = value() if callable(value) else value
            state["published"] = {"value": with_scopes(value, dict), "version": version}
        return {**state, "counters": self.counters.state()}

    def restore(self, state: Tree) -> None:
        self.who.restore(state["learner"])
        self.feed.restore(state["feed"])
        self.cadence.restore(state["cadence"])
        self.counters.restore(state["counters"])
        self.restored = state
        if "published" in state:
            self._published = (with_scopes(state["published"]["value"], Params), int(state["published"]["version"]))


def learner(learning: Learning, chunks: Callable[[], Generator[Effect, Any, list[Tree]]]) -> RoleCode:
    """Learns from chunks as they come, publishes what it learned, reports and saves."""
    counters, feed = learning.counters, learning.feed
    yield learning.publication()
    if learning.restored is None:
        yield counters.checkpoint(learning.state)
    while not counters.done:
        try:
            feed.add((yield from chunks()))
            yield from counters.agree(feed.ready)
        except Interrupted:
            break
        learning.promise()
        for round in learning.cadence.due(counters.steps, counters.ready):
            yield from learn_round(learning.who, feed, round, counters)
        if learning.who.version % learning.publish_every == 0:
            yield learning.publication()
        yield from counters.report(learning.report, learning.state)
    yield from counters.report(learning.report, learning.state, last=True)
    return learning.who.weights()


def chunks_of_actors(
    learning: Learning, senders: list[int], lockstep: bool, borrow: bool
) -> Generator[Effect, Any, Any]:
    """Those of a batch, in the order of actors: of each in turn in lockstep, else of whichever come first."""
    counters, who = learning.counters, learning.who
    borrow = borrow and counters.max_lag is None  # what is dropped as too old would count as borrowed
    if borrow:
        who.ticket()()  # what was borrowed before is given back by taking more
    taken: list[Tree] = []
    while len(taken) < learning.feed.chunks:
        sender = senders[len(taken) % len(senders)] if lockstep else None
        chunk = (yield Take(("experience",), sender, borrow=borrow)).item
        if counters.accept(chunk["about"], who.version):
            taken.append(chunk)
    taken.sort(key=lambda chunk: (int(chunk["about"]["actor"]), int(chunk["about"]["sequence"])))
    if not who.plan.replays:  # else what is drawn tells how old it is
        counters.note_lag([who.version - int(chunk["about"]["version"]) for chunk in taken])
    return [chunk["data"] for chunk in taken]


def no_chunks(learning: Learning) -> Generator[Effect, Any, list[Tree]]:
    """There are no actors: updates are the steps of the run."""
    learning.counters.count(min(BATCHES, learning.counters.length.total - learning.counters.steps))
    return []
    yield


def learn_round(who: Learner, feed: Feed, round: Round, counters: RunCounters) -> Generator[Effect, Any, None]:
    """The updates of a round; several learners average the gradients of each of their steps."""
    prioritizes = who.plan.prioritizes
    for batch in feed.batches(round):
        if batch.versions is not None:
            counters.note_lag(who.version - batch.versions)
        yield from learn(who, batch, round.progress, counters.learners)
        feed.lent(batch, who.ticket())
        if prioritizes:
            feed.learned(batch, who.priorities())


def learn(who: Learner, batch: Batch, progress: float, learners: int) -> Generator[Effect, Any, None]:
    """Learn from a batch, or from the part of it that is this learner's."""
    if learners == 1:
        who.update(batch.data, progress, batch.updates)
        return
    assert isinstance(who, GradientLearner)
    for data in batch.each():
        for gradients, weight, _ in who.gradient_steps(data, progress):
            who.apply((yield AllReduce("gradients", gradients, weight)), progress)
        statistics = who.statistics(data)
        if statistics:
            sums = yield AllReduce("statistics", sums_of_moments(statistics))
            who.absorb(moments_from_sums(map_leaves(lambda x: x * learners, sums)))
        who.version += 1


def learning_of(
    context: Context,
    role: RoleId,
    start: Start,
    feed: Feed | None = None,
    cadence: Cadence | None = None,
    max_lag: int | None = None,
    overlap: bool = False,
    publish_every: int = 1,
) -> Learning:
    """What the learner of a role consists of, as its last checkpoint has it; feed and cadence are the plan's unless
    others are given."""
    formation, plan = context.formation, context.plan
    # one of several looks at gradients before it applies them
    make = GradientLearner if formation.joined(role.kind) else Learner
    who = make(context.learning_graph(role), context.seed, context.summaries, role.index, overlap)
    chunks = context.batch_chunks if plan.acts else 0
    learning = Learning(
        who,
        feed or plan.feed(context.algorithm.step_spaces, chunks, context.seed, role.index),
        cadence or plan.cadence(context.length.total),
        RunCounters(context.length, max_lag, formation.count(role.kind)),
        context.reporter(who),
        overlap,
        publish_every,
    )
    state = context.restored(role, start)
    if state is not None:
        learning.restore(state)
    return learning


def make_learner(context: Context, role: RoleId, start: Start) -> RoleCode:
    """Learns from the chunks of its actors."""
    formation = context.formation
    max_lag = 0 if formation.fresh else None if formation.lockstep else context.counts.max_lag
    learning = learning_of(context, role, start, max_lag=max_lag)
    senders = formation.sources(formation.edge("experience"), role.index)
    return learner(learning, lambda: chunks_of_actors(learning, senders, formation.lockstep, borrow=True))


def blank_weights(context: Context) -> Tree:
    """The weights that actors get."""
    return {"params": acting_part(context.assembly, context.initial), "steps": np.int64(0)}


def blank_agreement(context: Context) -> Tree:
    return {name: np.float64(0) for name in ("steps", "ready", "stop")}


def blank_gradients(context: Context) -> Tree:
    """The gradients of all parameters that learn."""
    return context.algorithm.moving(context.initial)


def blank_statistics(context: Context) -> Tree:
    """The statistics of a batch that no gradient moves, as sums."""
    algorithm: Any = context.algorithm
    batch = context.plan.batch_space(algorithm.step_spaces)
    sums = sums_of_moments(map_leaves(np.asarray, algorithm.observe(batch.zeros_with({"time": 1, "batch": 1}))))
    return sums if leaves(sums) else {"nothing": np.float64(0)}
