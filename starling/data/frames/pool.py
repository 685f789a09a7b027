"""A pool of frames: each image is stored once, however many items, stacks and tables refer to it.

    pool = FramePool(Int((84, 84, 4), 0, 256, "uint8"), frames=1_020_000, stack_axis=-1)
    table = Table(signature, 1_000_000, shared={"obs": pool, "next_obs": pool})

A stacked observation is kept as the numbers of its frames. Neighbouring stacks share all frames but the newest, and
the next observation of one step is the observation of another: a step costs one frame, not eight. Sharing is decided
by the frames' contents, byte for byte, so that what comes out is exactly what went in, whatever made the stacks and
whoever brings them. A frame is freed when the last item that refers to it has left the last table.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from starling.core.memory import refuse_if_too_large
from starling.core.spaces import Leaf
from starling.data.frames.base import AnyFramePool
from starling.data.frames.kernels import (
    COUNT,
    gather_four_bytes,
    gather_interleaved,
    gather_whole,
    intern_frames,
    release_frames,
)
from starling.data.saving.files import map_file
from starling.data.tables.kernels import address
from starling.data.untrusted import Untrusted

__all__ = ["FramePool"]


class FramePool(AnyFramePool):
    """Room for ``frames`` frames, each as it is.

    A few more frames than table items are needed: one for each episode's first observation. When the pool is full, the
    tables that share it remove items by their own removers. ``directory`` keeps the frames in a file there.
    """

    def __init__(
        self, space: Leaf, frames: int, stack_axis: int | None = None, *, directory: Path | None = None
    ) -> None:
        AnyFramePool.__init__(self, space, frames, stack_axis)
        shape = (self.frames, self.elements)
        if directory is None:
            size = {"frames": self.frames * self.width}
            refuse_if_too_large(
                f"a pool of {frames:,} frames", size, "Lower frames, compress them, or use directory=…."
            )
            self.data = np.zeros(shape, space.numpy_dtype)
        else:
            self.data = map_file(directory / "frames.bin", shape, space.numpy_dtype)
        self.generation = np.zeros(self.frames, np.int32)

    def has_room(self, count: int) -> bool:
        return True

    def store(self, start: int, ids: np.ndarray) -> None:
        keep = self.keep
        if self.snapshot is not None:
            top = 1 + int(self.free[COUNT])
            self.snapshot.before_write(self.free[top - ids.size : top])
        intern_frames(
            address(self.data), self.width, self.references, self.generation, self.free,
            self.heads, self.links, self.hashes, start, ids.size, ids,
            keep["references"], keep["generation"], keep["free"], keep["hashes"],
        )  # fmt: skip
        self.extent = max(self.extent, int(ids.max(initial=-1)) + 1)

    def drop(self, ids: np.ndarray) -> None:
        keep = self.keep
        release_frames(
            self.references, self.free, self.heads, self.links, self.hashes, ids, keep["references"], keep["free"]
        )

    def gather(self, column: np.ndarray, slots: np.ndarray, out: np.ndarray) -> None:
        flat = column.reshape(column.shape[0], -1)
        if self.last and self.depth == 4 and self.data.itemsize == 1 and self.width % 16 == 0:
            gather_four_bytes(address(self.data), self.width, flat, slots, address(out))
        elif self.last and self.depth > 1:
            gather_interleaved(self.data, flat, slots, self.depth, out.reshape(-1, self.elements, self.depth))
        else:
            gather_whole(address(self.data), self.width, flat, slots, flat.shape[1], address(out))

    @property
    def most_frames(self) -> int:
        return self.frames

    @property
    def rows(self) -> np.ndarray:
        return self.data

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {"generation": self.generation}

    def check_rows(self, saved: Untrusted, arrays: Mapping[str, np.ndarray], extent: int) -> None:
        saved.check(not arrays["references"][extent:].any(), "references", f"only {extent} frames were ever written")

    def clear_rows(self) -> None:
        """A frame's number says where it lies."""

    def damaged_frame(self) -> int:
        return -1
