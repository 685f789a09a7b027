"""Feeds from a table: items are kept, and batches drawn from them again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from starling.core.spaces import Dict, Int, Leaf
from starling.core.trees import Tree, items, leaves, map_leaves
from starling.data import FramePool, MinSize, Sample, Table, prioritized
from starling.data.saving.saveable import SaveableTable
from starling.data.tables.limiters import TableCounts
from starling.experience.cadence import Round
from starling.experience.plan import Batch, Feed
from starling.experience.replayed import Drawing

__all__ = ["TableFeed"]

IN_TURN = 3  # draws that may be on their way to the backend at once
IMAGE_RANK, LEAST_BYTES = 3, 4_096  # of observations that lie in a pool of frames
LOOKED_AT = 1_024  # items from which the number of frames is estimated
MOST_PLANES = 16  # along the last axis of an image that is taken for a stack of frames
SPARE = 1.1  # frames in a pool for every one that is expected


class TableFeed(Feed):
    """Keeps items in a table. Images lie in a pool of frames, each once, however many items refer to it.

    The table is made when the first items have been seen, since only they tell how many different frames there are.
    """

    def __init__(self, signature: Dict, drawing: Drawing, seed: int, index: int = 0, chunks: int = 1) -> None:
        self.chunks, self.drawing, self.in_turn = chunks, drawing, IN_TURN
        self._signature, self._seed = signature, seed
        self._name = f"table-{index}" if index else "table"
        self._waiting: list[tuple[Tree, Any]] = []
        self._images = {path: leaf for path, leaf in signature.items() if _is_image(leaf)}
        self._table = None if self._images else self._make({})
        self._buffers: dict[int, list[tuple[Sample, Callable[[], None]]]] = {}
        self._turn = 0

    # -- keeping

    def add(self, chunks: list[Tree]) -> None:
        for chunk in chunks:
            count = int(chunk["rows"])
            rows = map_leaves(lambda x, count=count: x[:count], chunk["items"])
            self.insert(rows, rows.pop("priority", None))

    def insert(self, rows: Tree, priorities: np.ndarray | None = None) -> None:
        """Keep items [N, …] in the layout of the signature; without priorities they get the largest seen so far, so
        that they are soon drawn."""
        parts = leaves(rows)
        count = len(parts[0])
        if count == 0:
            return
        if self._table is None:
            self._waiting.append((map_leaves(np.array, rows), None if priorities is None else priorities.copy()))
            if sum(len(leaves(each)[0]) for each, _ in self._waiting) >= LOOKED_AT:
                self._make_with_pools()
        elif self._images:
            self._table.insert(rows, priorities)
        else:
            self._table.insert_leaves(parts, count, priorities)

    @property
    def table(self) -> Table:
        if self._table is None:
            self._make_with_pools()
        assert self._table is not None
        return self._table

    @property
    def counts(self) -> TableCounts:
        """Items inserted and drawn so far."""
        return self.table.admission.counts

    def __len__(self) -> int:
        return len(self._table or ()) + sum(len(leaves(rows)[0]) for rows, _ in self._waiting)

    @property
    def ready(self) -> bool:
        return len(self) > 0

    def _make(self, pools: dict[str, FramePool]) -> Table:
        d = self.drawing
        table = Table(
            self._signature,
            d.capacity,
            sampler=prioritized(d.alpha) if d.alpha else "uniform",
            limiter=MinSize(1),
            shared=pools,
            seed=self._seed,
            name=self._name,
        )
        self._saveable = SaveableTable(table)
        return table

    def _make_with_pools(self, planes: dict[str, int] | None = None) -> None:
        """Make the table, and its pools as large as the items seen so far ask for."""
        self._planes = self._estimated() if planes is None else planes
        pools: dict[tuple[Any, ...], FramePool] = {}
        by_path = {}
        for path, leaf in self._images.items():
            space = Int(leaf.shape[-IMAGE_RANK:], 0, 256, leaf.dtype)
            key = (space.shape, space.dtype)
            if key not in pools:
                stacked = self._planes["stacked"]
                frames = max(2 * space.shape[-1], self._planes["frames"])
                pools[key] = FramePool(space, frames, stack_axis=-1 if stacked else None)
            by_path[path] = pools[key]
        self._table = self._make(by_path)
        for rows, priorities in self._waiting:
            self._table.insert(rows, priorities)
        self._waiting = []

    def _estimated(self) -> dict[str, int]:
        """Whether planes of images recur, as those of stacked frames do, and how many a full table would hold."""
        capacity = self.drawing.capacity
        count = sum(len(leaves(each)[0]) for each, _ in self._waiting)
        whole, planes, depth = set(), set(), 1
        for each, _ in self._waiting:
            flat = dict(items(each))
            for path, leaf in self._images.items():
                images = flat[path].reshape(-1, *leaf.shape[-IMAGE_RANK:])
                depth = images.shape[-1]
                whole |= {image.tobytes() for image in images}
                if depth <= MOST_PLANES:
                    planes |= {plane.tobytes() for image in images for plane in np.moveaxis(image, -1, 0)}
        stacked = depth <= MOST_PLANES and len(planes) < 0.75 * depth * max(1, len(whole))
        found = len(planes) if stacked else len(whole)
        frames = int(SPARE * capacity * max(1.0, found / max(1, count))) + 64 * depth
        return {"stacked": int(stacked), "frames": frames}

    # -- drawing

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
        of_size = self._buffers.setdefault(rows, [])
        if len(of_size) < self.in_turn:
            of_size.append((self.table.buffers(rows), _nothing))
        self._turn = (self._turn + 1) % len(of_size)
        sample, wait = of_size[self._turn]
        wait()
        beta = self.drawing.beta
        self.table.sample(rows, out=sample, beta=None if beta is None else float(beta(progress)))
        data = {**sample.data, "weight": sample.weights}
        return Batch(data, 1, data.pop("version", None), sample.keys)

    def lent(self, batch: Batch, wait: Callable[[], None]) -> None:
        for of_size in self._buffers.values():
            for i, (sample, _) in enumerate(of_size):
                if sample.keys is batch.keys:
                    of_size[i] = (sample, wait)

    def learned(self, batch: Batch, priorities: np.ndarray) -> None:
        self.table.update_priorities(batch.keys, priorities)

    # -- saving

    def state(self) -> Tree:
        if self._table is None:
            return {"waiting": list(self._waiting)}
        return {"planes": self._planes if self._images else {}, "table": self._saveable}

    def restore(self, state: Tree) -> None:
        self._waiting = list(state.get("waiting", []))
        if "waiting" in state:
            return
        if self._images:
            self._make_with_pools({name: int(number) for name, number in state["planes"].items()})
        self._saveable.restore(state["table"])


def _nothing() -> None:
    """There is nothing to wait for."""


def _is_image(leaf: Leaf) -> bool:
    return leaf.numpy_dtype == np.uint8 and len(leaf.shape) >= IMAGE_RANK and leaf.size >= LEAST_BYTES
