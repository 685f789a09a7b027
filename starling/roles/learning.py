"""Roles that learn: from the chunks of actors, or from the samples of buffers."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import numpy as np

from starling.algorithms.plans import Replay
from starling.core.effects import AllReduce, Effect, Publish, Put, RoleCode, Take
from starling.core.trees import Tree
from starling.roles.chunks import joined
from starling.roles.gradients import GradientLearner
from starling.roles.learner import Learner
from starling.roles.replay import batch_of, insert_rows, learn_round
from starling.roles.run_counters import Accounts, Metrics

if TYPE_CHECKING:
    from starling.data import Table

__all__ = ["Feed", "ReplayFeed", "RolloutFeed", "apex_learner", "learner"]


class Feed:
    """Turns the chunks that arrive into updates."""

    chunks = 1  # that make a round

    def add(self, chunks: list[Tree]) -> None: ...

    def ready(self) -> bool:
        return True

    def learn(self, steps: int) -> Generator[Effect, Any, None]:
        """The updates that are due after so many steps of the run."""
        raise NotImplementedError

    def state(self) -> Tree:
        return {}

    def restore(self, state: Tree) -> None: ...


class RolloutFeed(Feed):
    """A batch is one rollout of each actor."""

    def __init__(self, learner: Learner, actors: int, learners: int) -> None:
        self.learner, self.chunks, self.learners = learner, actors, learners
        self._batch: Tree = None

    def add(self, chunks: list[Tree]) -> None:
        self._batch = joined(chunks)

    def learn(self, steps: int) -> Generator[Effect, Any, None]:
        yield from learn(self.learner, self._batch, self._batch["reward"].size, self.learners)


class ReplayFeed(Feed):
    """Chunks go into a table of the learner's own, from which it learns as often as the data plan says."""

    def __init__(self, learner: Learner, table: Table, plan: Replay, chunks: int, learners: int) -> None:
        self.learner, self.table, self.plan, self.learners = learner, table, plan, learners
        self.chunks, self._due = chunks, plan.every

    def add(self, chunks: list[Tree]) -> None:
        for chunk in chunks:
            insert_rows(self.table, chunk)

    def ready(self) -> bool:
        return len(self.table) >= self.plan.min_size // self.learners

    def learn(self, steps: int) -> Generator[Effect, Any, None]:
        while steps >= self._due:
            self._due += self.plan.every
            if self.learners == 1:
                learn_round(self.learner, self.table, self.plan)
                continue
            for _ in range(self.plan.updates):
                sample = self.table.sample(self.plan.batch_size)
                yield from learn(self.learner, batch_of(sample), self.plan.batch_size, self.learners)
                if self.plan.alpha:
                    self.table.update_priorities(sample.keys, self.learner.priorities())

    def skip(self, steps: int) -> None:
        """Let pass the rounds that fell due before there was enough to learn from."""
        self._due = max(self._due, (steps // self.plan.every + 1) * self.plan.every)

    def state(self) -> Tree:
        return {"table": self.table.state(), "due": self._due}

    def restore(self, state: Tree) -> None:
        self.table.restore(state["table"])
        self._due = int(state["due"])


def learn(learner: Learner, batch: Tree, rows: int, learners: int) -> Generator[Effect, Any, None]:
    """One update; several learners average the gradients of each of its steps."""
    if learners == 1:
        learner.update(batch, rows)
        return
    assert isinstance(learner, GradientLearner)
    for gradients, _ in learner.gradient_steps(batch, rows):
        learner.apply((yield AllReduce("gradients", gradients)))
    learner.version += 1


def learner(
    learner: Learner, feed: Feed, accounts: Accounts, metrics: Metrics, senders: list[int], lockstep: bool
) -> RoleCode:
    """Learns from actors' chunks: of each in turn in lockstep, else of whichever come first."""

    def state() -> Tree:
        return {"learner": learner.state(), "feed": feed.state(), "accounts": accounts.state()}

    def publish() -> Publish:
        return Publish("weights", {"params": learner.acting_weights()}, learner.version)

    yield publish()
    while not accounts.done:
        chunks: list[Tree] = []
        while len(chunks) < feed.chunks:
            sender = senders[len(chunks)] if lockstep else None
            chunk = (yield Take(("experience",), sender, borrow=True)).item
            if accounts.accept(chunk["about"], learner.version):
                chunks.append(chunk)
        feed.add(chunks)
        yield from accounts.agree(feed.ready())
        if accounts.ready:
            yield from feed.learn(accounts.steps)
        elif isinstance(feed, ReplayFeed):
            feed.skip(accounts.steps)
        yield publish()
        yield from accounts.tell(metrics, state)
    yield from accounts.tell(metrics, state, last=True)
    return learner.weights()


def apex_learner(
    learner: Learner,
    accounts: Accounts,
    metrics: Metrics,
    buffers: int,
    rows: int,
    ahead: int,
    publish_every: int,
    unanswered: tuple[int, ...] = (),
) -> RoleCode:
    """Learns from the samples of several buffers, of which ``ahead`` are asked for before they are needed."""

    def state() -> Tree:
        return {"learner": learner.state(), "feed": {}, "accounts": accounts.state()}

    request = {"rows": np.int64(rows)}
    yield Publish("weights", {"params": learner.acting_weights()}, learner.version)
    for buffer in range(buffers):
        for _ in range(ahead - (unanswered[buffer] if unanswered else 0)):
            yield Put("requests", request, to=buffer)
    while not accounts.done:
        _, sender, sample = yield Take(("samples",), borrow=True)
        yield Put("requests", request, to=sender)
        accounts.accept(sample["about"], learner.version)
        learner.update(sample["batch"], rows)
        yield Put("priorities", {"keys": sample["keys"], "priorities": learner.priorities()}, to=sender)
        if learner.version % publish_every == 0:
            yield Publish("weights", {"params": learner.acting_weights()}, learner.version)
        yield from accounts.agree(True)
        yield from accounts.tell(metrics, state)
    yield from accounts.tell(metrics, state, last=True)
    return learner.weights()
