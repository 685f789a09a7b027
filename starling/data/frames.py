"""A pool of frames: each image is stored once, however many items, stacks and tables refer to it.

    pool = FramePool(Int((84, 84, 4), 0, 256, "uint8"), frames=1_020_000, stack_axis=-1)
    table = Table(signature, 1_000_000, shared={"obs": pool, "next_obs": pool})

A stacked observation is kept as the numbers of its frames. Neighbouring stacks share all frames but the newest, and
the next observation of one step is the observation of another: a step costs one frame, not eight. Sharing is decided
by the frames' contents, byte for byte, so that what comes out is exactly what went in, whatever made the stacks and
whoever brings them. A frame is freed when the last item that refers to it has left the last table.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from starling.core.errors import ConfigError, DataError
from starling.core.spaces import Int, Leaf
from starling.data.frame_kernels import (
    COUNT,
    chain_all,
    gather_four_bytes,
    gather_interleaved,
    gather_whole,
    intern_frames,
    release_frames,
    retain_frames,
)
from starling.data.kernels import address
from starling.data.layout import human_bytes, refuse_if_too_large
from starling.data.snapshots import Snapshot

__all__ = ["FramePool"]


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
        self.width = elements * space.numpy_dtype.itemsize
        if self.width < 8:
            raise ConfigError(f"a frame of {space} has {self.width} bytes; sharing pays, and works, from 8 on.")
        self.hashes = np.zeros(self.frames, np.uint64)
        self._links = np.full(self.frames, -1, np.int32)
        self._heads = np.full(1 << (self.frames - 1).bit_length(), -1, np.int32)
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
        for i in range(n):
            try:
                self._make_room(self.depth)
            except DataError:
                self.release(ids[:i])
                raise
            with self.lock:
                if self._snapshot is not None:
                    top = 1 + int(self.free[COUNT])
                    self._snapshot.before_write(self.free[top - self.depth : top])
                intern_frames(
                    address(self.data), self.width, self.references, self.generation, self.free,
                    self._heads, self._links, self.hashes, start + i * each, self.depth, ids[i],
                )  # fmt: skip
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
            retain_frames(self.references, ids.ravel())

    def release(self, ids: np.ndarray) -> None:
        with self.lock:
            release_frames(self.references, self.free, self._heads, self._links, self.hashes, ids.ravel())

    def gather(self, column: np.ndarray, slots: np.ndarray, out: np.ndarray) -> None:
        """Write the observations of the rows ``slots`` of a column of frame numbers into ``out``."""
        flat = column.reshape(column.shape[0], -1)
        if self.last and self.depth == 4 and self.data.itemsize == 1 and self.width % 16 == 0:
            gather_four_bytes(address(self.data), self.width, flat, slots, address(out))
        elif self.last and self.depth > 1:
            gather_interleaved(self.data, flat, slots, self.depth, out.reshape(-1, self.data.shape[1], self.depth))
        else:
            gather_whole(address(self.data), self.width, flat, slots, flat.shape[1], address(out))

    def freeze(self) -> tuple[dict[str, np.ndarray], Snapshot]:
        """The references, and a view of the frames as they are now; the lock is held by the caller."""
        used = int(np.flatnonzero(self.references).max(initial=-1)) + 1
        self._snapshot = Snapshot([self.data], used)
        return self._small_state(), self._snapshot

    def _small_state(self) -> dict[str, np.ndarray]:
        return {
            "references": self.references.copy(),
            "free": self.free.copy(),
            "generation": self.generation.copy(),
            "hashes": self.hashes.copy(),
        }

    def thaw(self) -> None:
        self._snapshot = None

    def restore_frozen(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from the first result of ``freeze``, the frames being there; the lock is held by the caller."""
        self.references[:], self.free[:], self.generation[:] = state["references"], state["free"], state["generation"]
        self.hashes[:] = state["hashes"]
        chain_all(self.references, self._heads, self._links, self.hashes)

    def state(self) -> dict[str, Any]:
        """Frames and references, as a tree of arrays (copies)."""
        with self.lock:
            used = int(np.flatnonzero(self.references).max(initial=-1)) + 1
            return {"data": self.data[:used].copy(), **self._small_state()}

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
            self.restore_frozen(state)
