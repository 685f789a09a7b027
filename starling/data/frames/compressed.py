"""A pool of compressed frames: runs of equal bytes are stored once, without loss.

Screens of games consist of long runs: they take a quarter of their bytes or less, and cost a few microseconds more to
draw. A compressed frame is a chain of blocks, because its size is known only when it arrives. What would grow is stored
as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numba import njit

from starling.core.errors import ConfigError
from starling.core.memory import refuse_if_too_large
from starling.core.spaces import Leaf
from starling.data.frames.base import AnyFramePool, all_free
from starling.data.frames.kernels import COUNT, find_frame, hash_bytes, link_frame, unlink_frame
from starling.data.tables.copy_on_write import touch
from starling.data.tables.kernels import address, copy_bytes, fill_bytes, fill_zero, load_1, same_bytes, store_1
from starling.data.untrusted import Untrusted

__all__ = ["CompressedFramePool", "compress", "decompress"]

BLOCK = 256
KEPT = ("references", "free", "hashes", "generation", "following", "free_blocks", "firsts", "lengths")
SHORTEST_RUN, LONGEST_RUN, LONGEST_COPY = 3, 130, 128


@njit(cache=True, nogil=True)
def compress(source, width, target):  # type: ignore[no-untyped-def]
    """Compress the bytes at ``source`` to ``target``; returns their number, or ``width`` where they were copied.

    A byte c below 128 is followed by c + 1 bytes as they are; from 128 on, by one byte to be repeated c − 125 times.
    """
    done, written = 0, 0
    while done < width:
        value = load_1(source + done)
        run = 1
        while run < LONGEST_RUN and done + run < width and load_1(source + done + run) == value:
            run += 1
        if run >= SHORTEST_RUN:
            if written + 2 >= width:
                break
            store_1(target + written, 125 + run)
            store_1(target + written + 1, value)
            written += 2
            done += run
            continue
        end = done + run
        while end < width and end - done < LONGEST_COPY:
            if end + 2 < width:
                following = load_1(source + end)
                if load_1(source + end + 1) == following and load_1(source + end + 2) == following:
                    break
            end += 1
        end = min(end, done + LONGEST_COPY)
        if written + 1 + end - done >= width:
            break
        store_1(target + written, end - done - 1)
        copy_bytes(target + written + 1, source + done, end - done)
        written += 1 + end - done
        done = end
    if done < width:
        copy_bytes(target, source, width)
        return width
    return written


@njit(cache=True, nogil=True)
def decompress(source, length, width, target):  # type: ignore[no-untyped-def]
    """The reverse of ``compress``."""
    if length == width:
        copy_bytes(target, source, width)
        return
    read, written = 0, 0
    while read < length:
        control = load_1(source + read)
        if control < 128:
            copy_bytes(target + written, source + read + 1, control + 1)
            read += control + 2
            written += control + 1
        else:
            fill_bytes(target + written, load_1(source + read + 1), control - 125)
            read += 2
            written += control - 125


@njit(cache=True, nogil=True)
def _read_chain(blocks, following, first, length, target):  # type: ignore[no-untyped-def]
    block, done = first, 0
    while done < length:
        step = min(BLOCK, length - done)
        copy_bytes(target + done, blocks + np.int64(block) * BLOCK, step)
        block = following[block]
        done += step


@njit(cache=True, nogil=True)
def _unpack(frame, width, blocks, following, firsts, lengths, packed, target):  # type: ignore[no-untyped-def]
    """Write a frame's bytes to ``target``; ``packed`` is scratch."""
    _read_chain(blocks, following, firsts[frame], lengths[frame], packed)
    decompress(packed, lengths[frame], width, target)


@njit(cache=True, nogil=True)
def _store(  # type: ignore[no-untyped-def]
    width, references, free, heads, links, hashes, blocks, following, free_blocks, generation, firsts, lengths,
    packed, plain, new, count, ids, keep,
):  # fmt: skip
    """Find or store ``count`` frames that lie one after the other at ``new``; ``packed`` and ``plain`` are scratch.

    ``keep`` is what ``touch`` needs for each of the arrays ``KEPT``.
    """
    k_references, k_free, k_hashes, k_generation, k_following, k_free_blocks, k_firsts, k_lengths = keep
    for j in range(count):
        start = new + j * width
        value = hash_bytes(start, width)
        found = find_frame(heads, links, hashes, value, -1)
        while found >= 0:
            _unpack(found, width, blocks, following, firsts, lengths, packed, plain)
            if same_bytes(plain, start, width):
                break
            found = find_frame(heads, links, hashes, value, found)
        if found < 0:
            touch(free, COUNT, k_free)
            free[COUNT] -= 1
            found = np.int64(free[1 + free[COUNT]])
            length = compress(start, width, packed)
            touch(lengths, found, k_lengths)
            lengths[found] = length
            touch(firsts, found, k_firsts)
            touch(free_blocks, COUNT, k_free_blocks)
            last = -1
            for done in range(0, length, BLOCK):
                free_blocks[COUNT] -= 1
                block = free_blocks[1 + free_blocks[COUNT]]
                touch(generation, block, k_generation)
                generation[block] += 1
                copy_bytes(blocks + np.int64(block) * BLOCK, packed + done, min(BLOCK, length - done))
                if last < 0:
                    firsts[found] = block
                else:
                    touch(following, last, k_following)
                    following[last] = block
                last = block
            link_frame(heads, links, hashes, value, found, k_hashes)
        ids[j] = found
        touch(references, found, k_references)
        references[found] += 1


@njit(cache=True, nogil=True)
def _drop(references, free, heads, links, hashes, following, free_blocks, firsts, lengths, ids, keep):  # type: ignore[no-untyped-def]
    k_references, k_free, k_free_blocks = keep[0], keep[1], keep[5]
    for i in range(ids.size):
        frame = ids[i]
        if frame < 0:
            continue
        touch(references, frame, k_references)
        references[frame] -= 1
        if references[frame] > 0:
            continue
        unlink_frame(heads, links, hashes, frame)
        block = firsts[frame]
        touch(free_blocks, COUNT, k_free_blocks)
        for _ in range(0, lengths[frame], BLOCK):
            touch(free_blocks, 1 + free_blocks[COUNT], k_free_blocks)
            free_blocks[1 + free_blocks[COUNT]] = block
            free_blocks[COUNT] += 1
            block = following[block]
        touch(free, COUNT, k_free)
        touch(free, 1 + free[COUNT], k_free)
        free[1 + free[COUNT]] = frame
        free[COUNT] += 1


@njit(cache=True, nogil=True)
def _gather(width, blocks, following, firsts, lengths, packed, column, slots, target):  # type: ignore[no-untyped-def]
    """Frames one after the other; minus one is no frame, and gives zeros."""
    per_item = column.shape[1]
    for i in range(slots.size):
        for j in range(per_item):
            frame, place = column[slots[i], j], target + (i * per_item + j) * width
            if frame >= 0:
                _unpack(frame, width, blocks, following, firsts, lengths, packed, place)
            else:
                fill_zero(place, width)


@njit(cache=True, nogil=True)
def _damaged_frame(width, references, blocks, following, firsts, lengths, packed):  # type: ignore[no-untyped-def]
    """The first frame in use that does not decompress to ``width`` bytes, −1 where all do; ``packed`` is scratch."""
    for frame in range(references.size):
        length = np.int64(lengths[frame])
        if references[frame] <= 0 or length == width:
            continue
        _read_chain(blocks, following, firsts[frame], length, packed)
        read, written = 0, 0
        while read < length:
            control = load_1(packed + read)
            if control < 128:
                read += control + 2
                written += control + 1
            else:
                read += 2
                written += control - 125
        if read != length or written != width:
            return frame
    return -1


class CompressedFramePool(AnyFramePool):
    """Room for ``frames`` frames as long as their compressed bytes fit into ``nbytes``.

    When either is full, the tables that share the pool remove items by their own removers.
    """

    def __init__(self, space: Leaf, frames: int, stack_axis: int | None = None, *, nbytes: int) -> None:
        AnyFramePool.__init__(self, space, frames, stack_axis)
        self._most = -(-self.width // BLOCK)  # blocks that a frame may need
        count = int(nbytes) // BLOCK
        if count < 2 * self._most * self.depth:
            least = 2 * self._most * self.depth * BLOCK
            raise ConfigError(f"nbytes={nbytes}; two stacks that cannot be compressed must fit: at least {least}.")
        refuse_if_too_large(f"a pool of {frames:,} compressed frames", {"blocks": count * BLOCK}, "Lower nbytes.")
        self.blocks = np.zeros((count, BLOCK), np.uint8)
        self.following = np.full(count, -1, np.int32)
        self.free_blocks = all_free(count)
        self.generation = np.zeros(count, np.int32)
        self.firsts = np.full(self.frames, -1, np.int32)
        self.lengths = np.zeros(self.frames, np.int32)
        self._packed, self._plain = np.empty(self.width, np.uint8), np.empty(self.width, np.uint8)

    @property
    def bytes_in_use(self) -> int:
        return BLOCK * (len(self.blocks) - int(self.free_blocks[COUNT]))

    def has_room(self, count: int) -> bool:
        return bool(self.free_blocks[COUNT] >= count * self._most)

    def store(self, start: int, ids: np.ndarray) -> None:
        top = 1 + int(self.free_blocks[COUNT])
        if self.snapshot is not None:
            self.snapshot.before_write(self.free_blocks[top - ids.size * self._most : top])
        _store(
            self.width, self.references, self.free, self.heads, self.links, self.hashes, address(self.blocks),
            self.following, self.free_blocks, self.generation, self.firsts, self.lengths,
            address(self._packed), address(self._plain), start, ids.size, ids, self._keep_all(),
        )  # fmt: skip
        taken = self.free_blocks[1 + int(self.free_blocks[COUNT]) : top]
        self.extent = max(self.extent, int(taken.max(initial=-1)) + 1)

    def _keep_all(self) -> tuple[Any, ...]:
        return tuple(self.keep[name] for name in KEPT)

    def drop(self, ids: np.ndarray) -> None:
        _drop(
            self.references, self.free, self.heads, self.links, self.hashes,
            self.following, self.free_blocks, self.firsts, self.lengths, ids, self._keep_all(),
        )  # fmt: skip

    def gather(self, column: np.ndarray, slots: np.ndarray, out: np.ndarray) -> None:
        flat = column.reshape(column.shape[0], -1)
        packed = np.empty(self.width, np.uint8)  # its own, because draws do not hold the pool's lock
        side_by_side = self.last and self.depth > 1
        shape = (slots.size, flat.shape[1] // self.depth, self.depth, self.elements)
        plain = np.empty(shape, self.space.numpy_dtype) if side_by_side else out
        _gather(
            self.width, address(self.blocks), self.following, self.firsts, self.lengths, address(packed),
            flat, slots, address(plain),
        )  # fmt: skip
        if side_by_side:
            np.copyto(out.reshape(shape[0], shape[1], self.elements, self.depth), np.moveaxis(plain, 2, 3))

    @property
    def most_frames(self) -> int:
        return min(self.frames, len(self.blocks) // self._most)

    @property
    def rows(self) -> np.ndarray:
        return self.blocks

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {
            "generation": self.generation,
            "following": self.following,
            "free_blocks": self.free_blocks,
            "firsts": self.firsts,
            "lengths": self.lengths,
        }

    def check_rows(self, saved: Untrusted, arrays: Mapping[str, np.ndarray], extent: int) -> None:
        """Each block is part of one frame, or free."""
        used = arrays["references"] > 0
        lengths, blocks = arrays["lengths"][used], arrays["firsts"][used]
        saved.within("lengths", lengths, 1, self.width)
        taken = np.zeros(len(self.blocks), np.bool_)
        count = 0
        while blocks.size:
            saved.within("firsts", blocks, 0, extent - 1)
            taken[blocks] = True
            count += blocks.size
            lengths = lengths - BLOCK
            blocks = arrays["following"][blocks[lengths > 0]]
            lengths = lengths[lengths > 0]
        saved.check(np.count_nonzero(taken) == count, "following", "a block is part of one frame")
        saved.exactly("free_blocks", int(arrays["free_blocks"][COUNT]), arrays["free_blocks"][1:], ~taken)

    def clear_rows(self) -> None:
        self.free_blocks[:] = all_free(len(self.blocks))

    def damaged_frame(self) -> int:
        return int(
            _damaged_frame(
                self.width, self.references, address(self.blocks), self.following, self.firsts, self.lengths,
                address(self._packed),
            )
        )  # fmt: skip
