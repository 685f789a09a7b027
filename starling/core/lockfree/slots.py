"""Slots: messages of one layout, side by side in shared memory."""

from __future__ import annotations

import threading

import numpy as np

from starling.core.errors import RunError
from starling.core.segments import Field, Segment
from starling.core.trees import Tree, items, refilled

__all__ = ["Slots", "fence", "slot_fields"]

_lock = threading.Lock()


def fence() -> None:
    """Keep memory accesses before this point before those after it: taking a lock does."""
    with _lock:
        pass


def slot_fields(blank: Tree, slots: int) -> list[Field]:
    return [(path, (slots, *np.shape(leaf)), np.asarray(leaf).dtype.str) for path, leaf in items(blank)]


class Slots:
    """Messages of one layout in a segment."""

    def __init__(self, name: str, blank: Tree, segment: Segment) -> None:
        self._name, self._blank = name, blank
        self._paths = [path for path, _ in items(blank)]
        self._arrays = [segment.arrays[path] for path in self._paths]

    def write(self, slot: int, item: Tree) -> None:
        """Copy a message into a slot. An array may be shorter than the layout's: then the rest is as it was."""
        for (path, leaf), name, array in zip(items(item), self._paths, self._arrays, strict=True):
            target, leaf = array[slot, ...], np.asarray(leaf)
            if path != name or leaf.shape[1:] != target.shape[1:] or leaf.ndim != target.ndim:
                raise RunError(f"{self._name}: {path} {leaf.shape} was put, {name} {target.shape} was expected.")
            if leaf.ndim and len(leaf) != len(target):
                target = target[: len(leaf)]
            np.copyto(target, leaf, casting="same_kind")

    def read(self, slot: int, borrow: bool = False) -> Tree:
        views = (array[slot, ...] for array in self._arrays)
        return refilled(self._blank, [view if borrow else view.copy() for view in views])
