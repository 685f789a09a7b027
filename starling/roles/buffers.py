"""Replay apart from learning, as in Ape-X: buffers keep what actors send, learners ask them for samples."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from starling.core.effects import Checkpoint, Effect, Put, RoleCode, Take
from starling.core.trees import Tree
from starling.experience.cadence import EachBatch, Round
from starling.experience.plan import Batch, Feed
from starling.formations import RoleId, Start
from starling.roles.actors import blank_chunk
from starling.roles.context import Context
from starling.roles.learning import Learning, learner, learning_of
from starling.roles.run_counters import Tally

if TYPE_CHECKING:
    from starling.data import Limiter
    from starling.experience.tables import TableFeed

__all__ = ["Samples", "buffer", "make_buffer", "make_sampling_learner", "plan_of_buffers", "sampling_learner"]

PUBLISH_EVERY = 16  # updates between publications of the weights


def buffer(
    feed: TableFeed, limiter: Limiter, rows: int, largest: int, ahead: int, every: int, inserted: int = 0
) -> RoleCode:
    """Keeps what actors send, up to ``largest`` rows at a time, and hands samples of ``rows`` to learners, at the
    rate that the limiter allows. Up to ``ahead`` samples may be on their way."""
    tally, save_at = Tally(), (inserted // every + 1) * every
    feed.in_turn = ahead + 2
    while True:
        counts, capacity = feed.counts, feed.drawing.capacity
        full, early = limiter.holds_insert(largest, counts, capacity), limiter.holds_sample(rows, counts)
        edges = (*(() if full else ("experience",)), *(() if early else ("requests",)), "priorities")
        edge, sender, item = yield Take(edges, borrow=True, why=full or early or "")
        if edge == "priorities":
            feed.table.update_priorities(item["keys"], item["priorities"])
        elif edge == "requests":
            batch = feed.draw(rows, float(item["progress"]))
            reply = {"batch": batch.data, "versions": batch.versions, "keys": batch.keys.copy(), "about": tally.take()}
            yield Put("samples", reply, to=sender)
        else:
            tally.add(item["about"])
            feed.add([item["data"]])
            inserted += int(item["data"]["rows"])
        if inserted >= save_at:
            save_at = (inserted // every + 1) * every
            yield Checkpoint(inserted, partial(_kept, feed, inserted))


def _kept(feed: TableFeed, inserted: int) -> Tree:
    return {"feed": feed.state(), "inserted": inserted}


class Samples(Feed):
    """What buffers drew: each is learned from once, and what was found of its rows goes back to where it was drawn."""

    chunks = 1

    def __init__(self) -> None:
        self._sample: Tree = None
        self.found: Tree = None

    def add(self, chunks: list[Tree]) -> None:
        (self._sample,) = chunks

    def batches(self, round: Round) -> Iterator[Batch]:
        yield Batch(self._sample["batch"], 1, self._sample["versions"], self._sample["keys"])

    def learned(self, batch: Batch, priorities: np.ndarray) -> None:
        self.found = {"keys": batch.keys, "priorities": priorities}


def sampling_learner(learning: Learning, samples: Samples, open_requests: dict[int, int], ahead: int) -> RoleCode:
    """Learns from the samples of buffers, of which ``ahead`` are asked for before they are needed;
    ``open_requests`` are those that each still has to answer."""
    counters, who = learning.counters, learning.who
    last = -1  # whose sample was learned from last

    def request() -> Tree:
        return {"progress": np.float32(min(1.0, counters.steps / counters.length.total))}

    def next_sample() -> Generator[Effect, Any, list[Tree]]:
        nonlocal last
        if samples.found is not None:
            yield Put("priorities", samples.found, to=last)
        who.ticket()()  # what was borrowed is given back by taking more
        _, last, sample = yield Take(("samples",), borrow=True)
        yield Put("requests", request(), to=last)
        counters.accept(sample["about"], who.version)
        return [sample]

    for to, waiting in open_requests.items():
        for _ in range(ahead - waiting):
            yield Put("requests", request(), to=to)
    return (yield from learner(learning, next_sample))


def plan_of_buffers(context: Context) -> Any:
    """The plan of each buffer."""
    return context.whole_plan.buffered(context.formation.count("learner"), context.formation.count("buffer"))


def make_buffer(context: Context, role: RoleId, start: Start) -> RoleCode:
    """A shard of the replay table."""
    from starling.data import MinSize, SamplesPerInsert

    plan, shards = plan_of_buffers(context), context.formation.count("buffer")
    feed: Any = plan.feed(context.algorithm.step_spaces, 1, context.seed, role.index)
    state = context.restored(role, start)
    inserted = 0
    if state is not None:
        feed.restore(state["feed"])
        inserted = int(state["inserted"])
    given = context.counts.samples_per_insert
    ratio = plan.samples_per_insert * context.formation.count("learner") if given is None else given
    largest = len(blank_chunk(context)["data"]["items"]["reward"])
    least = max(plan.batch_size, plan.first_items // shards)
    margin = plan.batch_size + ratio * largest
    limiter = SamplesPerInsert(ratio, margin=margin, min_size=least) if ratio else MinSize(least)
    ahead = context.counts.queue or 1
    return buffer(feed, limiter, plan.batch_size, largest, ahead, context.length.checkpoint_every, inserted)


def make_sampling_learner(context: Context, role: RoleId, start: Start) -> RoleCode:
    """Learns from the samples of its buffers."""
    samples = Samples()
    learning = learning_of(context, role, start, samples, EachBatch(context.length.total), publish_every=PUBLISH_EVERY)
    buffers = context.formation.targets(context.formation.edge("requests"), role.index)
    unanswered = dict(zip(buffers, start.unanswered or (0,) * len(buffers)))
    return sampling_learner(learning, samples, unanswered, context.counts.queue or 1)


def blank_request(context: Context) -> Tree:
    return {"progress": np.float32(0)}


def blank_sample(context: Context) -> Tree:
    plan = plan_of_buffers(context)
    rows, about = plan.batch_size, Tally().take()
    batch = plan.batch_space(context.algorithm.step_spaces).zeros((rows,))
    return {"batch": batch, "versions": np.zeros(rows, np.int64), "keys": np.zeros(rows, np.int64), "about": about}


def blank_priorities(context: Context) -> Tree:
    rows = plan_of_buffers(context).batch_size
    return {"keys": np.zeros(rows, np.int64), "priorities": np.zeros(rows, np.float32)}
