"""Copy-on-write arrays: compiled loops copy a page before they first write to it.

    frozen = FrozenArrays({"keys": keys, "times": times})
    frozen.begin({"keys": ("keys", 0, 100)})   # this is the moment
    update(keys, times, frozen.keep)           # a compiled loop that calls touch(keys, i, …) ahead of keys[i] = …
    frozen.copy("keys", 0, 100)                # as they were at the start

The moment costs next to nothing, however large the arrays are. While nothing is frozen the loops get None in place of
``keep``; numba compiles them once more for that, without a trace of the copying.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numba import njit

__all__ = ["PAGE", "FrozenArrays", "Ranges", "touch", "touch_range"]

SHIFT = 6
PAGE = 1 << SHIFT  # numbers
FOUND = 2_048  # pages for which there is memory from the start: the first writers after the moment copy the most
Ranges = Mapping[str, tuple[str, int, int]]  # name → array, first number, the one behind the last


@njit(cache=True, nogil=True)
def touch(array, i, keep):  # type: ignore[no-untyped-def]
    """Called before array[i] is written.

    ``keep`` is None, or: of each page 1 + its place among the copies (0: none; −1: nobody wants it any more),
    those copies one behind the other, and their number. One behind the other, because the system takes long to find
    memory for the first number of a page of its own.
    """
    if keep is not None:
        places, copies, count = keep
        page = i >> SHIFT
        if places[page] == 0:
            first, place = page << SHIFT, count[0] << SHIFT
            for j in range(first, min(first + PAGE, array.size)):
                copies[place + j - first] = array[j]
            count[0] += 1
            places[page] = count[0]


@njit(cache=True, nogil=True)
def touch_range(array, start, end, keep):  # type: ignore[no-untyped-def]
    """Called before array[start:end] is written."""
    for page in range(start >> SHIFT, ((end - 1) >> SHIFT) + 1):
        touch(array, page << SHIFT, keep)


@njit(cache=True, nogil=True)
def _read(array, start, end, places, copies, out):  # type: ignore[no-untyped-def]
    """Copy array[start:end] as it was; pages that lie in it wholly need no copy any more."""
    for page in range(start >> SHIFT, ((end - 1) >> SHIFT) + 1):
        first, behind = page << SHIFT, min((page + 1) << SHIFT, array.size)
        place = places[page]
        if place == 0:
            for j in range(max(first, start), min(behind, end)):
                out[j - start] = array[j]
            if first >= start and behind <= end:
                places[page] = -1
        else:
            shift = ((place - 1) << SHIFT) - first
            for j in range(max(first, start), min(behind, end)):
                out[j - start] = copies[shift + j]


def _room(size: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Uninitialised numbers, of which the first few will be written.

    Not from NumPy, which asks for huge pages: the system would clear two megabytes at a time, while somebody waits.
    """
    if os.name != "posix" or not size:
        return np.empty(size, dtype)
    memory = mmap.mmap(-1, size * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    small_pages = getattr(mmap, "MADV_NOHUGEPAGE", None)
    if small_pages is not None:
        memory.madvise(small_pages)
    return np.frombuffer(memory, dtype)


class FrozenArrays:
    """Ranges of arrays as they are at one moment, each to be read once, while the arrays' owner goes on writing.

    Made ahead, because finding memory takes long; ``begin`` is the moment.

    ``keep`` is what the owner's compiled loops take, for each array in the given order; see ``touch``. The owner's lock
    is held by whoever writes or reads.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._arrays = dict(arrays)
        self.ranges: dict[str, tuple[str, int, int]] = {}
        keep = []
        for array in arrays.values():
            pages = (array.size >> SHIFT) + 1
            copies = _room(pages * PAGE, array.dtype)
            copies[: FOUND * PAGE] = 0
            keep.append((np.full(pages, 0, np.int32), copies, np.zeros(1, np.int64)))
        self.keep = tuple(keep)
        self._pages = dict(zip(arrays, keep))

    def begin(self, ranges: Ranges) -> None:
        """From now on ``keep`` keeps what these ranges hold; the lock is held by the caller."""
        self.ranges = dict(ranges)
        for name in set(self._arrays) - {array for array, _, _ in ranges.values()}:
            self._pages[name][0][:] = -1

    def length(self, name: str) -> int:
        _, start, end = self.ranges[name]
        return end - start

    def dtype(self, name: str) -> np.dtype[Any]:
        return self._arrays[self.ranges[name][0]].dtype

    def stride(self, name: str) -> int:
        """Bytes from one number to the next."""
        return self._arrays[self.ranges[name][0]].strides[0]

    def copy(self, name: str, start: int, end: int, out: np.ndarray | None = None) -> np.ndarray:
        """The numbers ``start`` … ``end`` − 1 of a range as they were."""
        source, first, _ = self.ranges[name]
        array = self._arrays[source]
        out = np.empty(end - start, array.dtype) if out is None else out
        if end > start:
            places, copies, _ = self._pages[source]
            _read(array, first + start, first + end, places, copies, out)
        return out
