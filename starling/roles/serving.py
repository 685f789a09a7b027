"""Roles that serve learners and workers: the buffer and the parameter server; and the worker itself."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from starling.algorithms.plans import Replay
from starling.core.effects import Checkpoint, Effect, Latest, Publish, Put, Report, RoleCode, Take
from starling.core.trees import Tree
from starling.roles.chunks import EPISODES, Chunks
from starling.roles.gradients import GradientLearner, Keeper, merged, part_of
from starling.roles.policy import Policy
from starling.roles.replay import batch_of, insert_rows
from starling.roles.run_counters import Accounts, Metrics

if TYPE_CHECKING:
    from starling.data import Table
    from starling.data.tables.limiters import Limiter

__all__ = ["Tally", "Workshop", "buffer", "nothing", "parameter_server", "worker"]


REPORT_EVERY = 50  # pushes between a worker's reports


class Tally:
    """What actors told a buffer since it last passed it on."""

    def __init__(self) -> None:
        self.steps = self.episodes = 0
        self.version = 0
        self.returns: list[float] = []

    def add(self, about: Tree) -> None:
        self.steps += int(about["steps"])
        episodes = int(about["episodes"])
        self.episodes += episodes
        self.returns += [float(x) for x in about["returns"][:episodes]]

    def take(self) -> dict[str, Any]:
        """The tally as a chunk's ``about``; what does not fit waits for the next one."""
        returns, self.returns = self.returns[:EPISODES], self.returns[EPISODES:]
        padded = np.zeros(EPISODES, np.float32)
        padded[: len(returns)] = returns
        told = {"steps": np.int64(self.steps), "episodes": np.int64(len(returns)), "version": np.int64(self.version)}
        self.steps, self.episodes = 0, 0
        return {**told, "returns": padded}


def nothing(version: int = 0) -> Tree:
    """An empty tally, with the shapes of every one."""
    tally = Tally()
    tally.version = version
    return tally.take()


def buffer(table: Table, limiter: Limiter, rows: int, largest: int, ahead: int, checkpoint_every: int) -> RoleCode:
    """Keeps what actors send, up to ``largest`` rows at a time, and hands samples of ``rows`` to the learner, at the
    rate that the limiter allows. Up to ``ahead`` samples may be on their way."""
    results = cycle([table.buffers(rows) for _ in range(ahead + 2)])
    tally, inserted, save_at = Tally(), 0, checkpoint_every
    while True:
        counts = table.admission.counts
        full = limiter.holds_insert(largest, counts, table.capacity)
        early = limiter.holds_sample(rows, counts)
        edges = (*(() if full else ("experience",)), *(() if early else ("requests",)), "priorities")
        edge, sender, item = yield Take(edges, borrow=True, why=full or early or "")
        if edge == "priorities":
            table.update_priorities(item["keys"], item["priorities"])
        elif edge == "requests":
            sample = table.sample(rows, out=next(results))
            reply = {"batch": batch_of(sample), "keys": sample.keys.copy(), "about": tally.take()}
            yield Put("samples", reply, to=sender)
        else:
            tally.add(item["about"])
            tally.version = int(item["about"]["version"])
            inserted += insert_rows(table, item, prioritized=True)
        if inserted >= save_at:
            save_at += checkpoint_every
            yield Checkpoint(inserted, lambda: {"table": table.state()})


def parameter_server(keeper: Keeper, accounts: Accounts) -> RoleCode:
    """Applies the gradients of workers to its shard of the parameters, in the order in which they come."""

    def state() -> Tree:
        return {"keeper": keeper.state(), "accounts": accounts.state()}

    def metrics() -> tuple[dict[str, float], dict[str, Any]]:
        return {"updates": keeper.version}, {}

    yield Publish("weights", keeper.view(), keeper.version)
    while not accounts.done:
        item = (yield Take(("gradients",), borrow=True)).item
        accounts.accept(item["about"], keeper.version)
        keeper.apply(item["gradients"])
        yield Publish("weights", keeper.view(), keeper.version)
        yield from accounts.agree(True)
        yield from accounts.tell(metrics, state)
    yield from accounts.tell(metrics, state, last=True)
    return keeper.weights()


class Workshop:
    """A worker's source of batches: its next rollout, or samples of a table that its own steps fill."""

    def __init__(self, chunks: Chunks, table: Table | None = None) -> None:
        self.chunks, self.table = chunks, table
        self.plan = chunks.collector.algorithm.plan
        self._due = self.plan.every if isinstance(self.plan, Replay) else 0
        self._rollout: Tree = None

    def collect(self) -> Generator[Effect, Any, Tree]:
        """Act for a while; what to tell of it is returned."""
        chunk = yield from self.chunks.next()
        if self.table is None:
            self._rollout = chunk["data"]
        else:
            insert_rows(self.table, chunk)
        return chunk["about"]

    def due(self, learner: GradientLearner) -> Iterator[tuple[Tree, int]]:
        """The batches that ``learner`` is to learn from now, and their rows."""
        if self.table is None:
            yield self._rollout, self._rollout["reward"].size
            return
        assert isinstance(self.plan, Replay)
        while self.chunks.collector.steps >= self._due:
            self._due += self.plan.every
            if len(self.table) >= self.plan.min_size:
                for _ in range(self.plan.updates):
                    sample = self.table.sample(self.plan.batch_size)
                    yield batch_of(sample), self.plan.batch_size
                    if self.plan.alpha:
                        self.table.update_priorities(sample.keys, learner.priorities())


def worker(
    learner: GradientLearner,
    policy: Policy,
    workshop: Workshop,
    shards: list[set[str]],
    metrics: Metrics,
    pushed: int,
) -> RoleCode:
    """Acts, computes gradients, and sends to every server those of its shard; ``pushed`` is how often it did before."""
    tally = Tally()

    def pull() -> Generator[Effect, Any, int]:
        parts = []
        for server in range(len(shards)):
            parts.append((yield Latest("weights", after=pushed + 1, sender=server)))
        view = merged([part.value for part in parts])
        version = min(part.version for part in parts)
        learner.see(view)
        policy.load(view["params"], version)
        return version

    tally.version = yield from pull()
    while True:
        tally.add((yield from workshop.collect()))
        for batch, rows in workshop.due(learner):
            for gradients, last in learner.gradient_steps(batch, rows):
                if len(shards) > 1:  # a single server sees all of them, and clips by itself
                    gradients = learner.clipped(gradients)
                about = tally.take() if last else nothing(tally.version)
                for server, shard in enumerate(shards):
                    yield Put("gradients", {"gradients": part_of(gradients, shard), "about": about}, to=server)
                pushed += 1
                tally.version = yield from pull()
                if pushed % REPORT_EVERY == 0:
                    values, histograms = metrics()
                    del values["updates"]  # the servers know
                    yield Report(-1, values, histograms)
