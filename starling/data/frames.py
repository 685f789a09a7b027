"""A pool of frames: each image is stored once, however many items, stacks and tables refer to it.

    pool = FramePool(Int((84, 84, 4), 0, 256, "uint8"), frames=1_020_000, stack_axis=-1)
    table = Table(signature, 1_000_000, shared={"obs": pool, "next_obs": pool})

A stacked observation is kept as the numbers of its frames. Neighbouring stacks share all frames but the newest, and
the next observation of one step is the observation of another: a step costs one frame, not eight. Sharing is decided
by comparing contents, so that what comes out is exactly what went in, whatever made the stacks. A frame is freed when
the last item that refers to it has left the last table.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numba import njit

from starling.core.errors import ConfigError, DataError
from starling.core.spaces import Int, Leaf
from starling.data.kernels import address, copy_bytes, fill_zero
from starling.data.layout import human_bytes, refuse_if_too_large
from starling.data.snapshots import Snapshot

__all__ = ["FramePool"]

COUNT = 0  # the first number of the free list is its length


@njit(cache=True, nogil=True)
def _same(data, frame, stack, j):  # type: ignore[no-untyped-def]
    """Whether frame ``frame`` of the pool equals frame ``j`` of a stack [elements, frames]."""
    for start in range(0, data.shape[1], 64):
        different = False
        for e in range(start, min(start + 64, data.shape[1])):
            different |= data[frame, e] != stack[e, j]
        if different:
            return False
    return True


@njit(cache=True, nogil=True)
def _intern(data, references, generation, free, stack, hints, ids):  # type: ignore[no-untyped-def]
    """Find or store each frame of a stack; ``hints`` are frames that it may be equal to, likeliest first.

    A stack that moved on by one frame matches hint j + 1 with its frame j. Each id gains a reference.
    """
    for j in range(stack.shape[1]):
        found = -1
        for attempt in range(hints.size + j):
            candidate = hints[(j + 1 + attempt) % hints.size] if attempt < hints.size else ids[attempt - hints.size]
            if candidate >= 0 and _same(data, candidate, stack, j):
                found = candidate
                break
        if found < 0:
            free[COUNT] -= 1
            found = free[1 + free[COUNT]]
            generation[found] += 1
            for e in range(data.shape[1]):
                data[found, e] = stack[e, j]
        ids[j] = found
        references[found] += 1


@njit(cache=True, nogil=True)
def _retain(references, ids):  # type: ignore[no-untyped-def]
    for i in range(ids.size):
        if ids[i] >= 0:
            references[ids[i]] += 1


@njit(cache=True, nogil=True)
def _release(references, free, ids):  # type: ignore[no-untyped-def]
    for i in range(ids.size):
        if ids[i] >= 0:
            references[ids[i]] -= 1
            if references[ids[i]] == 0:
                free[1 + free[COUNT]] = ids[i]
                free[COUNT] += 1


@njit(cache=True, nogil=True)
def _gather_whole(source, width, column, slots, per_item, target):  # type: ignore[no-untyped-def]
    """Frames one after the other: plain copies."""
    for i in range(slots.size):
        for j in range(per_item):
            frame = column[slots[i], j]
            if frame >= 0:
                copy_bytes(target + (i * per_item + j) * width, source + frame * width, width)
            else:
                fill_zero(target + (i * per_item + j) * width, width)


@njit(cache=True, nogil=True)
def _gather_interleaved(data, column, slots, frames, out):  # type: ignore[no-untyped-def]
    """Frames side by side in the last dimension; ``out`` is [stacks, elements, frames]."""
    stacks = column.shape[1] // frames
    for i in range(slots.size):
        for s in range(stacks):
            row = out[i * stacks + s]
            if column[slots[i], frames * s] < 0:  # padding behind the end of an episode
                row[:] = 0
            elif frames == 4:
                a, b = data[column[slots[i], 4 * s]], data[column[slots[i], 4 * s + 1]]
                c, d = data[column[slots[i], 4 * s + 2]], data[column[slots[i], 4 * s + 3]]
                for e in range(row.shape[0]):
                    row[e, 0] = a[e]
                    row[e, 1] = b[e]
                    row[e, 2] = c[e]
                    row[e, 3] = d[e]
            else:
                for j in range(frames):
                    frame = data[column[slots[i], frames * s + j]]
                    for e in range(row.shape[0]):
                        row[e, j] = frame[e]


class Evicts(Protocol):
    """A table that can give up an item."""

    def evict(self) -> bool: ...


class FramePool:
    """Room for ``frames`` frames of observations like ``space``, stacked along ``stack_axis`` (None: not stacked).

    The axis is the first (0) or the last (−1) of the observation. A few more frames than table items are needed: one
    for each episode's first observation. When the pool is full, the tables that share it remove items by their own
    removers.
    """

    def __init__(
        self, space: Leaf, frames: int, stack_axis: int | None = None, *, directory: Path | None = None
    ) -> None:
        if stack_axis not in (None, 0, -1, len(space.shape) - 1):
            raise ConfigError(f"stack_axis={stack_axis}; frames are stacked along the first (0) or the last axis (-1).")
        self.space = space
        self.last = stack_axis not in (None, 0)
        self.depth = 1 if stack_axis is None else space.shape[-1 if self.last else 0]
        self.frames = int(frames)
        if self.frames < 2 * self.depth:
            raise ConfigError(f"frames={frames}; the pool must hold two stacks of {self.depth} at least.")
        elements = space.size // max(1, self.depth)
        size = self.frames * elements * space.numpy_dtype.itemsize
        if directory is None:
            refuse_if_too_large(f"a pool of {frames:,} frames", {"frames": size}, "Lower frames, or use directory=….")
            self.data = np.zeros((self.frames, elements), space.numpy_dtype)
        else:
            directory.mkdir(parents=True, exist_ok=True)
            path = directory / "frames.bin"
            self.data = np.memmap(path, space.numpy_dtype, "w+", shape=(self.frames, elements))
        self.references = np.zeros(self.frames, np.int32)
        self.free = np.concatenate([[self.frames], np.arange(self.frames - 1, -1, -1)]).astype(np.int32)
        self.generation = np.zeros(self.frames, np.int32)
        self.lock = threading.Lock()
        self._snapshot: Snapshot | None = None
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

    def _as_stacks(self, observations: np.ndarray) -> np.ndarray:
        """Views [N, elements, frames] of observations [N, *shape]."""
        n = observations.shape[0]
        if self.last:
            return observations.reshape(n, -1, self.depth)
        return observations.reshape(n, self.depth, -1).transpose(0, 2, 1)

    def intern(self, observations: np.ndarray, hints: np.ndarray) -> np.ndarray:
        """The frame numbers [N, depth] of N observations, each with one reference more.

        ``hints`` [N, H] are frames that the observation may share, −1 for none; their contents are compared.
        """
        n = observations.shape[0]
        if observations.shape[1:] != self.space.shape or observations.dtype != self.space.numpy_dtype:
            raise DataError(
                f"observations {observations.dtype}{list(observations.shape)} arrived, {self.space} was expected."
            )
        stacks = self._as_stacks(observations)
        ids = np.empty((n, self.depth), np.int32)
        for i in range(n):
            self._make_room(self.depth)
            with self.lock:
                if self._snapshot is not None:
                    top = 1 + int(self.free[COUNT])
                    self._snapshot.before_write(self.free[top - self.depth : top])
                _intern(self.data, self.references, self.generation, self.free, stacks[i], hints[i], ids[i])
        return ids

    def _make_room(self, needed: int) -> None:
        while self.free[COUNT] < needed:
            evicted = [owner.evict() for owner in self._owners]
            if not any(evicted):
                raise DataError(
                    f"all {self.frames} frames ({human_bytes(self.data.nbytes)}) are held by unfinished items and none "
                    "by a table; make the pool larger."
                )

    def retain(self, ids: np.ndarray) -> None:
        with self.lock:
            _retain(self.references, ids.ravel())

    def release(self, ids: np.ndarray) -> None:
        with self.lock:
            _release(self.references, self.free, ids.ravel())

    def gather(self, column: np.ndarray, slots: np.ndarray, out: np.ndarray) -> None:
        """Write the observations of the rows ``slots`` of a column of frame numbers into ``out``."""
        flat = column.reshape(column.shape[0], -1)
        if self.last and self.depth > 1:
            _gather_interleaved(self.data, flat, slots, self.depth, out.reshape(-1, self.data.shape[1], self.depth))
        else:
            width = self.data.shape[1] * self.data.itemsize
            _gather_whole(address(self.data), width, flat, slots, flat.shape[1], address(out))

    def freeze(self) -> tuple[dict[str, np.ndarray], Snapshot]:
        """The references, and a view of the frames as they are now; the lock is held by the caller."""
        used = int(np.flatnonzero(self.references).max(initial=-1)) + 1
        self._snapshot = Snapshot([self.data], used)
        arrays = {"references": self.references, "free": self.free, "generation": self.generation}
        return {name: array.copy() for name, array in arrays.items()}, self._snapshot

    def thaw(self) -> None:
        self._snapshot = None

    def restore_frozen(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from the first result of ``freeze``, the frames being there; the lock is held by the caller."""
        self.references[:], self.free[:], self.generation[:] = state["references"], state["free"], state["generation"]

    def state(self) -> dict[str, Any]:
        """Frames and references, as a tree of arrays (copies)."""
        with self.lock:
            used = int(np.flatnonzero(self.references).max(initial=-1)) + 1
            return {"data": self.data[:used].copy(), "references": self.references.copy(), "free": self.free.copy()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state()`` of a pool of the same size."""
        data, references = np.asarray(state["data"]), np.asarray(state["references"])
        if references.shape != self.references.shape or data.shape[1:] != self.data.shape[1:]:
            raise DataError(
                f"the state is of {references.size} frames of {data.shape[1:]} numbers; this pool has {self.frames} of "
                f"{self.data.shape[1:]}."
            )
        with self.lock:
            self.data[: data.shape[0]] = data
            self.references[:], self.free[:] = references, state["free"]
