"""Feeds from a table: items are kept, and batches drawn from them again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from starling.core.spaces import Dict
from starling.core.trees import Tree, map_leaves
from starling.data import MinSize, Table, prioritized
from starling.data.tables.limiters import TableCounts
from starling.data.tables.pooled import PooledTable
from starling.data.tables.sample import Results
from starling.experience.cadence import Round
from starling.experience.plan import Batch, Feed
from starling.experience.replayed import Drawing

__all__ = ["TableFeed"]

IN_TURN = 3  # draws that may be on their way to the backend at once


class TableFeed(Feed):
    """Keeps items in a table. Images lie in a pool of frames, each once, however many items refer to it."""

    def __init__(self, signature: Dict, drawing: Drawing, seed: int, index: int = 0, chunks: int = 1) -> None:
        self.chunks, self.drawing, self.in_turn = chunks, drawing, IN_TURN
        self._items = PooledTable(
            signature,
            drawing.capacity,
            sampler=prioritized(drawing.alpha) if drawing.alpha else "uniform",
            limiter=MinSize(1),
            seed=seed,
            name=f"table-{index}" if index else "table",
        )
        self._results: Results | None = None

    def add(self, chunks: list[Tree]) -> None:
        for chunk in chunks:
            count = int(chunk["rows"])
            rows = map_leaves(lambda x, count=count: x[:count], chunk["items"])
            self.insert(rows, rows.pop("priority", None))

    def insert(self, rows: Tree, priorities: np.ndarray | None = None) -> None:
        """Keep items [N, …] in the layout of the signature."""
        self._items.insert(rows, priorities)

    @property
    def table(self) -> Table:
        return self._items.table

    @property
    def counts(self) -> TableCounts:
        """Items inserted and drawn so far."""
        return self._items.counts

    @property
    def ready(self) -> bool:
        return len(self._items) > 0

    def batches(self, round: Round) -> Iterator[Batch]:
        """Of the updates of a round: all in one draw, except where each changes what the next one draws."""
        rows = self.drawing.batch_size
        if self.drawing.alpha or round.updates == 1:
            for _ in range(round.updates):
                yield self.draw(rows, round.progress)
            return
        batch = self.draw(rows * round.updates, round.progress)
        data = map_leaves(lambda x: x.reshape(round.updates, rows, *x.shape[1:]), batch.data)
        yield batch._replace(data=data, updates=round.updates)

    def draw(self, rows: int, progress: float) -> Batch:
        """One batch; its memory is used again once what was computed from it is there."""
        if self._results is None:
            self._results = Results(self.table.columns, self.in_turn)
        beta, sample = self.drawing.beta, self._results.next(rows)
        self.table.sample(rows, out=sample, beta=None if beta is None else float(beta(progress)))
        data = {**sample.data, "weight": sample.weights}
        return Batch(data, 1, data.pop("version", None), sample.keys)

    def lent(self, batch: Batch, wait: Callable[[], None]) -> None:
        if self._results is not None:
            self._results.lend(batch.keys, wait)

    def learned(self, batch: Batch, priorities: np.ndarray) -> None:
        self.table.update_priorities(batch.keys, priorities)

    def state(self) -> Tree:
        return self._items.state()

    def restore(self, state: Tree) -> None:
        self._items.restore(state)
