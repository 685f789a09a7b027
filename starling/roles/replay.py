"""Learning from a table: the one that an algorithm's data plan describes, and rounds of updates from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starling.algorithms.base import Algorithm
from starling.algorithms.plans import Replay
from starling.core.trees import Tree, map_leaves
from starling.roles.chunks import rows_of
from starling.roles.collectors import signature_for

if TYPE_CHECKING:
    from starling.data import Sample, Table
    from starling.roles.learner import Learner

__all__ = ["batch_of", "insert_rows", "learn_round", "table_for"]


def table_for(algorithm: Algorithm, seed: int, shards: int = 1, index: int = 0) -> Table:
    """The algorithm's table, or one of several that hold it together."""
    from starling.data import MinSize, Table, prioritized

    plan = algorithm.plan
    assert isinstance(plan, Replay)
    return Table(
        signature_for(algorithm),
        max(plan.batch_size, plan.capacity // shards),
        sampler=prioritized(plan.alpha) if plan.alpha else "uniform",
        beta=plan.beta if plan.alpha else 1.0,
        limiter=MinSize(max(plan.batch_size, plan.min_size // shards)),
        seed=seed,
        name=f"table-{index}" if index else "table",
    )


def insert_rows(table: Table, chunk: Tree, prioritized: bool = False) -> int:
    """Insert the transitions of a chunk, with their priorities or, as the newest, with the highest; how many."""
    rows = rows_of(chunk)
    priority = rows.pop("priority")
    if len(priority):
        table.insert(rows, priority if prioritized else None)
    return len(priority)


def batch_of(sample: Sample) -> Tree:
    """A draw as the batch that an algorithm takes."""
    return {**sample.data, "weight": sample.weights}


def learn_round(learner: Learner, table: Table, plan: Replay) -> None:
    """A round of updates: all in one call, except where each changes what the next one draws."""
    rows, times = plan.batch_size, plan.updates
    if plan.alpha:
        for _ in range(times):
            sample = table.sample(rows)
            learner.update(batch_of(sample), rows)
            table.update_priorities(sample.keys, learner.priorities())
    elif times == 1:
        learner.update(batch_of(table.sample(rows)), rows)
    else:
        batch = batch_of(table.sample(rows * times))
        learner.update_often(map_leaves(lambda x: x.reshape(times, rows, *x.shape[1:]), batch), rows, times)
