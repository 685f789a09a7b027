"""What all frame pools have in common: stacks become frame numbers, and full pools ask their tables for room."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from starling.core.errors import CheckpointError, ConfigError, DataError
from starling.core.spaces import Int, Leaf
from starling.data.frames.kernels import COUNT, chain_all, retain_frames
from starling.data.tables.copy_on_write import FrozenArrays
from starling.data.tables.kernels import address
from starling.data.tables.snapshots import Frozen, Snapshot
from starling.data.untrusted import Untrusted

__all__ = ["AnyFramePool", "Evicts", "all_free"]


class Evicts(Protocol):
    """A table that can give up an item, and count how often its items refer to each frame of a pool."""

    @property
    def lock(self) -> threading.Lock: ...

    def evict(self) -> bool: ...

    def references_to(self, pool: AnyFramePool) -> np.ndarray: ...


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
        self.free = all_free(self.frames)
        self.hashes = np.zeros(self.frames, np.uint64)
        self.links = np.full(self.frames, -1, np.int32)
        self.heads = np.full(1 << (self.frames - 1).bit_length(), -1, np.int32)
        self.lock = threading.Lock()
        self.extent = 0  # rows ever written: those beyond hold nothing
        self._claimed = np.zeros(self.frames, np.int64)  # references that adders took over since ``restore``
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
    def most_frames(self) -> int:
        """Frames for which there is room, however little they can be compressed."""

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

    def frozen_layout(self, numbers: Untrusted) -> tuple[int, dict[str, int]]:
        """How many rows ``freeze`` keeps, and numbers in each array; CheckpointError where that cannot be."""
        sizes = {name: array.size for name, array in self._all_arrays().items()}
        return numbers.integer("extent", 0, len(self.rows)), sizes

    def check_frozen(self, numbers: Untrusted, arrays: Untrusted) -> None:
        """CheckpointError unless ``restore_frozen`` may follow these numbers; nothing changes."""
        own = self._all_arrays()
        saved = {name: arrays.array(name, array.shape, array.dtype) for name, array in own.items()}
        arrays.within("references", saved["references"], 0, np.iinfo(np.int32).max)
        arrays.exactly("free", int(saved["free"][COUNT]), saved["free"][1:], saved["references"] == 0)
        self.check_rows(arrays, saved, numbers.integer("extent", 0, len(self.rows)))

    def restore_frozen(self, numbers: Untrusted, arrays: Untrusted) -> None:
        """Continue from what ``freeze`` gave and ``check_frozen`` let pass, the rows being there; the lock is held by
        the caller."""
        self.extent = numbers.integer("extent")
        for name, array in self._all_arrays().items():
            array[...] = arrays.get(name)
        chain_all(self.references, self.heads, self.links, self.hashes)
        self._claimed[:] = 0

    @abstractmethod
    def check_rows(self, saved: Untrusted, arrays: Mapping[str, np.ndarray], extent: int) -> None:
        """CheckpointError unless the frames in use lie in the first ``extent`` rows, as these arrays say."""

    @abstractmethod
    def clear_rows(self) -> None:
        """Forget where frames lie in the rows."""

    @abstractmethod
    def damaged_frame(self) -> int:
        """A frame in use of which the rows hold something else, −1 where there is none."""

    def check_contents(self, owners: Iterable[Evicts] | None = None) -> None:
        """CheckpointError where the rows that were restored are no frames, or items of the tables (all of them) refer
        to more than is counted; the tables' locks are held by the caller."""
        remedy = "the checkpoint is damaged; restore an older one"
        if (frame := self.damaged_frame()) >= 0:
            raise CheckpointError(f"frame {frame} of a pool cannot be unpacked to {self.width} bytes; {remedy}.")
        if (self._counted(self._owners if owners is None else owners) > self.references).any():
            raise CheckpointError(
                f"items refer to frames more often than their pool has counted; {remedy}, or all tables that share the "
                "pool, together."
            )

    def _counted(self, owners: Iterable[Evicts]) -> np.ndarray:
        """How often the items of these tables refer to each frame."""
        return sum((owner.references_to(self) for owner in owners), np.zeros(self.frames, np.int64))

    def check_ids(self, saved: Untrusted, name: str, ids: np.ndarray, used: np.ndarray) -> None:
        """Refuse frame numbers [..., depth] beyond the pool, stacks with a gap, and ``used`` ones [...] that nobody
        holds."""
        saved.within(name, ids, -1, self.frames - 1)
        saved.check(((ids < 0).all(-1) == (ids < 0).any(-1)).all(), name, "a stack has all of its frames, or none")
        held = ids[used]
        saved.check((self.references[held[held >= 0]] > 0).all(), name, "the pool holds the frames it refers to")

    def claim(self, saved: Untrusted, ids: np.ndarray) -> None:
        """Let a restored adder give these references back later, which the restored pool has counted."""
        counts = np.bincount(ids[ids >= 0], minlength=self.frames)
        with contextlib.ExitStack() as locks:
            for lock in (*(owner.lock for owner in self._owners), self.lock):
                locks.enter_context(lock)
            spare = self.references - self._counted(self._owners) - self._claimed
            saved.check((counts <= spare).all(), "held", "the pool has counted it; restore the tables first")
            self._claimed += counts

    def clear(self) -> None:
        """Let go of everything; the lock is held by the caller."""
        self.extent = 0
        self.references[:] = 0
        self.free[:] = all_free(self.frames)
        self.heads[:] = -1
        self._claimed[:] = 0
        self.clear_rows()

    def state(self) -> dict[str, Any]:
        """Everything, as a tree of arrays (copies)."""
        with self.lock:
            copies = {name: array.copy() for name, array in self._all_arrays().items()}
            return {"rows": self.rows[: self.extent].copy(), **copies}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state()`` of a pool of the same size."""
        saved, numbers, rows = self.check_state(state)
        with self.lock:
            self.rows[: len(rows)] = rows
            self.restore_frozen(numbers, saved)

    def check_state(self, state: Any) -> tuple[Untrusted, Untrusted, np.ndarray]:
        """The arrays, numbers and rows of a state; CheckpointError where they are of another pool, or damaged."""
        saved = Untrusted(state, "a pool's state", f"this pool has {self.frames} frames")
        rows = saved.array("rows", (None, *self.rows.shape[1:]), self.rows.dtype)
        numbers = Untrusted({"extent": len(rows)}, "the rows of a pool's state")
        self.check_frozen(numbers, saved)
        return saved, numbers, rows


def all_free(n: int) -> np.ndarray:
    """The list of free numbers when all of them are: its length, and the numbers, of which the last goes first."""
    return np.concatenate([[n], np.arange(n - 1, -1, -1)]).astype(np.int32)
