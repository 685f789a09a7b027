"""What all frame pools have in common: stacks become frame numbers, and full pools ask their tables for room."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from starling.core.errors import ConfigError, DataError
from starling.core.spaces import Int, Leaf
from starling.data.frames.kernels import COUNT, chain_all, retain_frames
from starling.data.tables.copy_on_write import FrozenArrays
from starling.data.tables.kernels import address
from starling.data.tables.snapshots import Frozen, Snapshot

__all__ = ["AnyFramePool", "Evicts"]


class Evicts(Protocol):
    """A table that can give up an item."""

    def evict(self) -> bool: ...


class AnyFramePool(ABC):
    """Numbers frames of observations like ``space``, stacked along ``stack_axis`` (None: not stacked).

    The axis is the first (0) or the last (−1) of the observation. Every frame is counted by how many items refer to it
    and found by a hash of its contents.
    """

    def __init__(self, space: Leaf, frames: int, stack_axis: int | None) -> None:
        if stack_axis not in (None, 0, -1, len(space.shape) - 1):
            raise ConfigError(f"stack_axis={stack_axis}; frames are stacked along the first (0) or the last axis (-1).")
        self.space, self.frames = space, int(frames)
        self.last = stack_axis not in (None, 0)
        self.depth = 1 if stack_axis is None else space.shape[-1 if self.last else 0]
        if self.frames < 2 * self.depth:
            raise ConfigError(f"frames={frames}; the pool must hold two stacks of {self.depth} at least.")
        self.elements = space.size // max(1, self.depth)
        self.width = self.elements * space.numpy_dtype.itemsize
        if self.width < 8:
            raise ConfigError(f"a frame of {space} has {self.width} bytes; sharing pays, and works, from 8 on.")
        self.references = np.zeros(self.frames, np.int32)
        self.free = np.concatenate([[self.frames], np.arange(self.frames - 1, -1, -1)]).astype(np.int32)
        self.hashes = np.zeros(self.frames, np.uint64)
        self.links = np.full(self.frames, -1, np.int32)
        self.heads = np.full(1 << (self.frames - 1).bit_length(), -1, np.int32)
        self.lock = threading.Lock()
        self.extent = 0  # rows ever written: those beyond hold nothing
        self.snapshot: Snapshot | None = None
        self.keep: dict[str, Any] = defaultdict(lambda: None)  # copies on write of each array, while frozen
        self._owners: list[Evicts] = []

    @staticmethod
    def frames_for(capacity: int, depth: int = 4) -> int:
        """A sensible number of frames for a table of ``capacity`` transitions: 2 % above it."""
        return capacity + capacity // 50 + 16 * depth

    @property
    def in_use(self) -> int:
        return self.frames - int(self.free[COUNT])

    def join(self, owner: Evicts) -> None:
        """Let a table give up items when the pool is full."""
        self._owners.append(owner)

    def stored_space(self, leaf: Leaf) -> Leaf:
        """What a table keeps in place of ``leaf``: frame numbers, one per frame of each observation in it."""
        lead = leaf.shape[: len(leaf.shape) - len(self.space.shape)]
        if leaf.shape[len(lead) :] != self.space.shape or leaf.dtype != self.space.dtype:
            raise ConfigError(f"the pool holds frames of {self.space}; the leaf {leaf} does not consist of those.")
        return Int((*lead, self.depth), -1, self.frames, "int32")

    def intern(self, observations: np.ndarray) -> np.ndarray:
        """The frame numbers [N, depth] of N observations, each with one reference more."""
        n = observations.shape[0]
        if observations.shape[1:] != self.space.shape or observations.dtype != self.space.numpy_dtype:
            raise DataError(
                f"observations {observations.dtype}{list(observations.shape)} arrived, {self.space} was expected."
            )
        stacks = np.moveaxis(observations, -1, 1) if self.last and self.depth > 1 else observations
        frames = np.ascontiguousarray(stacks)
        ids = np.empty((n, self.depth), np.int32)
        start, each = address(frames), self.depth * self.width
        if self._try_store(start, ids.reshape(-1)):
            return ids
        for i in range(n):
            while not self._try_store(start + i * each, ids[i]):
                evicted = [owner.evict() for owner in self._owners]
                if not any(evicted):
                    self.release(ids[:i])
                    raise DataError(
                        f"all the room for {self.frames} frames is held by unfinished items and none by a table; make "
                        "the pool larger."
                    )
        return ids

    def _try_store(self, start: int, ids: np.ndarray) -> bool:
        with self.lock:
            if self.free[COUNT] < ids.size or not self.has_room(ids.size):
                return False
            self.store(start, ids)
            return True

    def retain(self, ids: np.ndarray) -> None:
        with self.lock:
            retain_frames(self.references, ids.ravel(), self.keep["references"])

    def release(self, ids: np.ndarray) -> None:
        with self.lock:
            self.drop(ids.ravel())

    @abstractmethod
    def has_room(self, count: int) -> bool:
        """Whether the bytes of so many more frames fit; the lock is held."""

    @abstractmethod
    def store(self, start: int, ids: np.ndarray) -> None:
        """Find or store ``ids.size`` frames that lie one after the other at an address; the lock is held."""

    @abstractmethod
    def drop(self, ids: np.ndarray) -> None:
        """Take a reference from each frame and free those without any; the lock is held."""

    @abstractmethod
    def gather(self, column: np.ndarray, slots: np.ndarray, out: np.ndarray) -> None:
        """Write the observations of the rows ``slots`` of a column of frame numbers into ``out``."""

    @property
    @abstractmethod
    def rows(self) -> np.ndarray:
        """The bytes of all frames, in rows that are written whole."""

    @property
    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """The further arrays of the state by name; ``generation`` counts how often each row was written."""

    def _all_arrays(self) -> dict[str, np.ndarray]:
        return {"references": self.references, "free": self.free, "hashes": self.hashes, **self.arrays}

    def prepare(self) -> Frozen:
        """Room for a frozen pool; no lock is needed."""
        return Frozen({}, Snapshot([self.rows]), FrozenArrays(self._all_arrays()))

    def freeze(self, frozen: Frozen) -> None:
        """Keep everything as it is now, to be read while the pool goes on; the lock is held by the caller."""
        arrays = self._all_arrays()
        frozen.numbers = {"extent": self.extent}
        frozen.rows.begin(self.extent)
        frozen.arrays.begin({name: (name, 0, array.size) for name, array in arrays.items()})
        self.keep.update(zip(arrays, frozen.arrays.keep))
        self.snapshot = frozen.rows

    def thaw(self) -> None:
        self.snapshot = None
        self.keep.clear()

    def restore_frozen(self, numbers: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Continue from what ``freeze`` gave, the rows being there; the lock is held by the caller."""
        self.extent = int(numbers["extent"])
        for name, array in self._all_arrays().items():
            array[...] = arrays[name]
        chain_all(self.references, self.heads, self.links, self.hashes)

    def state(self) -> dict[str, Any]:
        """Everything, as a tree of arrays (copies)."""
        with self.lock:
            copies = {name: array.copy() for name, array in self._all_arrays().items()}
            return {"rows": self.rows[: self.extent].copy(), **copies}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state()`` of a pool of the same size."""
        rows, references = np.asarray(state["rows"]), np.asarray(state["references"])
        if references.shape != self.references.shape or rows.shape[1:] != self.rows.shape[1:]:
            raise DataError(
                f"the state is of {references.size} frames in rows of {rows.shape[1:]}; this pool has {self.frames} in "
                f"rows of {self.rows.shape[1:]}."
            )
        with self.lock:
            self.rows[: rows.shape[0]] = rows
            self.restore_frozen({"extent": rows.shape[0]}, state)
