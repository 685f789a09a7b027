"""The compiled loops of a frame pool: find a frame by its contents, count references, gather.

Frames are bytes here. Those in use are chained by a hash of their contents: ``heads`` has the first frame of each
chain, ``links`` the next one of each frame, ``hashes`` the hash of each. Equal hashes are not enough: the bytes are
compared. Arguments that start with ``k_`` are what ``touch`` needs to keep the old contents of an array.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from starling.data.tables.copy_on_write import touch
from starling.data.tables.kernels import copy_bytes, fill_zero, interleave_4x16, load_8, prefetch, same_bytes

__all__ = [
    "COUNT",
    "chain_all",
    "find_frame",
    "gather_four_bytes",
    "gather_interleaved",
    "gather_whole",
    "hash_bytes",
    "intern_frames",
    "link_frame",
    "release_frames",
    "retain_frames",
    "unlink_frame",
]

LINE = 64  # bytes that a processor fetches at a time
COUNT = 0  # the first number of the free list is its length
PRIME = np.uint64(0x9E3779B97F4A7C15)
SHIFT = np.uint64(29)


@njit(cache=True, nogil=True)
def hash_bytes(start, width):  # type: ignore[no-untyped-def]
    """Sixty-four bits that depend on all bytes; four lanes, because a multiplication takes several cycles."""
    a, b, c, d = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(width)
    done = 0
    while done + 32 <= width:
        a = (a ^ load_8(start + done)) * PRIME
        b = (b ^ load_8(start + done + 8)) * PRIME
        c = (c ^ load_8(start + done + 16)) * PRIME
        d = (d ^ load_8(start + done + 24)) * PRIME
        a ^= a >> SHIFT
        b ^= b >> SHIFT
        c ^= c >> SHIFT
        d ^= d >> SHIFT
        done += 32
    while done + 8 <= width:
        a = (a ^ load_8(start + done)) * PRIME
        a ^= a >> SHIFT
        done += 8
    if done < width and width >= 8:  # the last bytes, some of them a second time
        b = (b ^ load_8(start + width - 8)) * PRIME
    for lane in (b, c, d):
        a = (a ^ lane) * PRIME
        a ^= a >> SHIFT
    return a


@njit(cache=True, nogil=True)
def find_frame(heads, links, hashes, value, after):  # type: ignore[no-untyped-def]
    """The next frame with this hash behind ``after`` in its chain (−1: the first); −1 where there is none."""
    found = np.int64(heads[np.int64(value & np.uint64(heads.size - 1))] if after < 0 else links[after])
    while found >= 0 and hashes[found] != value:
        found = np.int64(links[found])
    return found


@njit(cache=True, nogil=True)
def link_frame(heads, links, hashes, value, frame, k_hashes):  # type: ignore[no-untyped-def]
    """Put a frame into the chain of its hash."""
    bucket = np.int64(value & np.uint64(heads.size - 1))
    touch(hashes, frame, k_hashes)
    hashes[frame] = value
    links[frame] = heads[bucket]
    heads[bucket] = frame


@njit(cache=True, nogil=True)
def unlink_frame(heads, links, hashes, frame):  # type: ignore[no-untyped-def]
    """Take a frame out of its chain."""
    bucket = np.int64(hashes[frame] & np.uint64(heads.size - 1))
    if heads[bucket] == frame:
        heads[bucket] = links[frame]
        return
    before = heads[bucket]
    while links[before] != frame:
        before = links[before]
    links[before] = links[frame]


@njit(cache=True, nogil=True)
def intern_frames(  # type: ignore[no-untyped-def]
    source, width, references, generation, free, heads, links, hashes, new, count, ids,
    k_references, k_generation, k_free, k_hashes,
):  # fmt: skip
    """Find or store ``count`` frames that lie one after the other at ``new``; each id gains a reference."""
    for j in range(count):
        start = new + j * width
        value = hash_bytes(start, width)
        found = find_frame(heads, links, hashes, value, -1)
        while found >= 0 and not same_bytes(source + found * width, start, width):
            found = find_frame(heads, links, hashes, value, found)
        if found < 0:
            touch(free, COUNT, k_free)
            free[COUNT] -= 1
            found = np.int64(free[1 + free[COUNT]])
            touch(generation, found, k_generation)
            generation[found] += 1
            copy_bytes(source + found * width, start, width)
            link_frame(heads, links, hashes, value, found, k_hashes)
        ids[j] = found
        touch(references, found, k_references)
        references[found] += 1


@njit(cache=True, nogil=True)
def chain_all(references, heads, links, hashes):  # type: ignore[no-untyped-def]
    """Make the chains anew from the hashes of all frames in use."""
    heads[:] = -1
    for frame in range(references.size):
        if references[frame] > 0:
            link_frame(heads, links, hashes, hashes[frame], frame, None)


@njit(cache=True, nogil=True)
def retain_frames(references, ids, k_references):  # type: ignore[no-untyped-def]
    for i in range(ids.size):
        if ids[i] >= 0:
            touch(references, ids[i], k_references)
            references[ids[i]] += 1


@njit(cache=True, nogil=True)
def release_frames(references, free, heads, links, hashes, ids, k_references, k_free):  # type: ignore[no-untyped-def]
    """Drop references; a frame without any leaves its chain and becomes free."""
    for i in range(ids.size):
        frame = ids[i]
        if frame < 0:
            continue
        touch(references, frame, k_references)
        references[frame] -= 1
        if references[frame] == 0:
            unlink_frame(heads, links, hashes, frame)
            touch(free, COUNT, k_free)
            touch(free, 1 + free[COUNT], k_free)
            free[1 + free[COUNT]] = frame
            free[COUNT] += 1


@njit(cache=True, nogil=True)
def gather_whole(source, width, column, slots, per_item, target):  # type: ignore[no-untyped-def]
    """Frames one after the other: plain copies. Minus one is no frame, and gives zeros."""
    for i in range(slots.size):
        for j in range(per_item):
            frame = column[slots[i], j]
            if frame >= 0:
                copy_bytes(target + (i * per_item + j) * width, source + frame * width, width)
            else:
                fill_zero(target + (i * per_item + j) * width, width)


@njit(cache=True, nogil=True)
def gather_four_bytes(source, width, column, slots, target):  # type: ignore[no-untyped-def]
    """Four frames of bytes side by side in the last dimension, sixteen elements at a time; the width fits that.

    Frames lie anywhere, so those of the next item are fetched while this one is written: a fifth faster.
    """
    stacks = column.shape[1] // 4
    for i in range(slots.size):
        following = column[slots[min(i + 1, slots.size - 1)]]
        for s in range(stacks):
            start = target + (i * stacks + s) * 4 * width
            if column[slots[i], 4 * s] < 0:
                fill_zero(start, 4 * width)
                continue
            a, b = source + column[slots[i], 4 * s] * width, source + column[slots[i], 4 * s + 1] * width
            c, d = source + column[slots[i], 4 * s + 2] * width, source + column[slots[i], 4 * s + 3] * width
            for e in range(0, width, 16):
                if e % LINE == 0:
                    for j in range(4 * s, 4 * s + 4):
                        prefetch(source + following[j] * width + e)  # of no frame, −1, too: a prefetch never fails
                interleave_4x16(start + 4 * e, a + e, b + e, c + e, d + e)


@njit(cache=True, nogil=True)
def gather_interleaved(data, column, slots, frames, out):  # type: ignore[no-untyped-def]
    """Frames side by side in the last dimension; ``out`` is [stacks, elements, frames]."""
    stacks = column.shape[1] // frames
    for i in range(slots.size):
        for s in range(stacks):
            row = out[i * stacks + s]
            if column[slots[i], frames * s] < 0:
                row[:] = 0
            else:
                for j in range(frames):
                    frame = data[column[slots[i], frames * s + j]]
                    for e in range(row.shape[0]):
                        row[e, j] = frame[e]
