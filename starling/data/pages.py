"""Arrays frozen page by page: compiled loops put a page aside before they first write to it.

    frozen = FrozenArrays({"keys": keys, "times": times}, {"keys": ("keys", 0, 100)})
    update(keys, times, frozen.keep)           # a compiled loop that calls touch(keys, i, …) ahead of keys[i] = …
    frozen.copy("keys", 0, 100)                # as they were at the start

Freezing costs next to nothing, however large the arrays are. While nothing is frozen the loops get None in place of
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
Ranges = Mapping[str, tuple[str, int, int]]  # name → array, first number, the one behind the last


@njit(cache=True, nogil=True)
def touch(array, i, keep):  # type: ignore[no-untyped-def]
    """Called before array[i] is written; ``keep`` is None, or the array's marks and the pages put aside."""
    if keep is not None:
        marks, aside = keep
        page = i >> SHIFT
        if marks[page] == 0:
            marks[page] = 1
            for j in range(page << SHIFT, min((page + 1) << SHIFT, array.size)):
                aside[j] = array[j]


@njit(cache=True, nogil=True)
def touch_range(array, start, end, keep):  # type: ignore[no-untyped-def]
    """Called before array[start:end] is written."""
    for page in range(start >> SHIFT, ((end - 1) >> SHIFT) + 1):
        touch(array, page << SHIFT, keep)


@njit(cache=True, nogil=True)
def _read(array, start, end, marks, aside, out):  # type: ignore[no-untyped-def]
    """Copy array[start:end] as it was; pages that lie in it wholly need not be put aside any more."""
    for page in range(start >> SHIFT, ((end - 1) >> SHIFT) + 1):
        first, behind = page << SHIFT, min((page + 1) << SHIFT, array.size)
        whole = first >= start and behind <= end
        if marks[page] == 0:
            for j in range(max(first, start), min(behind, end)):
                out[j - start] = array[j]
            if whole:
                marks[page] = 1
        else:
            for j in range(max(first, start), min(behind, end)):
                out[j - start] = aside[j]


def _room(size: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Uninitialised numbers of which a few will be written, here and there.

    Not from NumPy, which asks for huge pages: the system would clear two megabytes for each of those few.
    """
    if os.name != "posix" or not size:
        return np.empty(size, dtype)
    memory = mmap.mmap(-1, size * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    small_pages = getattr(mmap, "MADV_NOHUGEPAGE", None)
    if small_pages is not None:
        memory.madvise(small_pages)
    return np.frombuffer(memory, dtype)


class FrozenArrays:
    """Ranges of arrays as they are now, each to be read once, while the arrays' owner goes on writing.

    ``keep`` is what the owner's compiled loops take: marks and room for pages, for each array in the given order. The
    owner's lock is held by whoever writes or reads.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], ranges: Ranges) -> None:
        self._arrays, self.ranges = dict(arrays), dict(ranges)
        needed = {array for array, _, _ in ranges.values()}
        keep = []
        for name, array in arrays.items():
            pages = (array.size >> SHIFT) + 1
            if name in needed:
                keep.append((np.zeros(pages, np.uint8), _room(array.size, array.dtype)))
            else:  # marked from the start: nobody wants it
                keep.append((np.ones(pages, np.uint8), np.empty(0, array.dtype)))
        self.keep = tuple(keep)
        self._pages = dict(zip(arrays, keep))

    def length(self, name: str) -> int:
        _, start, end = self.ranges[name]
        return end - start

    def dtype(self, name: str) -> np.dtype[Any]:
        return self._arrays[self.ranges[name][0]].dtype

    def stride(self, name: str) -> int:
        """Bytes from one number to the next."""
        return self._arrays[self.ranges[name][0]].strides[0]

    def copy(self, name: str, start: int, end: int) -> np.ndarray:
        """The numbers ``start`` … ``end`` − 1 of a range as they were."""
        source, first, _ = self.ranges[name]
        array = self._arrays[source]
        out = np.empty(end - start, array.dtype)
        if end > start:
            _read(array, first + start, first + end, *self._pages[source], out)
        return out
