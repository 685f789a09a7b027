"""Loading what a manifest names: all of it is checked before anything follows it, and where that fails nothing stays.

What takes little memory, the numbers and arrays of tables and pools, is read and checked before anything changes. Rows
are read into place, since they may take all the memory there is; where they turn out to be damaged, or cannot be read,
the tables are empty afterwards.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from starling.data.saving.files import digest_of, dtype_of, read_tensors, read_tree
from starling.data.saving.sources import Source
from starling.data.untrusted import Untrusted

__all__ = ["Loaded", "Written", "read_source", "restore_sources"]

Written = tuple[str, dict[str, Any]]  # the digest of arrays, and the entry of their file


@dataclass
class Loaded:
    """A source as a checkpoint has it, but for its rows."""

    source: Source
    entry: Untrusted
    numbers: Untrusted
    arrays: Untrusted
    pieces: list[Written]
    extent: int  # rows


def read_source(directory: Path, source: Source, entry: Untrusted) -> Loaded:
    """Numbers and arrays that the source may go on from; CheckpointError where they are damaged."""
    numbers = Untrusted(read_tree(directory, entry.part("small")), f"the numbers of {source.name!r}")
    extent, sizes = source.kept.frozen_layout(numbers)
    found, pieces = _read_arrays(directory, entry.part("arrays"), sizes)
    arrays = Untrusted(found, f"the arrays of {source.name!r}")
    source.kept.check_frozen(numbers, arrays)
    _check_tiles(entry, "blocks", [block.integers("rows", 0, extent) for block in entry.parts("blocks")], extent)
    return Loaded(source, entry, numbers, arrays, pieces, extent)


def _read_arrays(
    directory: Path, entry: Untrusted, sizes: dict[str, int]
) -> tuple[dict[str, np.ndarray], list[Written]]:
    """The arrays of these sizes, put together from pieces that are called ``name:start``; and where they were."""
    lengths = entry.part("lengths")
    arrays = {name: np.empty(size, dtype_of(lengths, name)) for name, size in sizes.items()}
    ranges: dict[str, list[list[int]]] = {name: [] for name in arrays}
    most, files = sum(array.nbytes for array in arrays.values()), []
    for part in entry.parts("pieces"):
        pieces = Untrusted(read_tensors(directory, part, most), part.what)
        files.append((digest_of(pieces.plain), dict(part.plain)))
        for label in pieces:
            name, _, place = label.rpartition(":")
            pieces.check(name in arrays and place.isdecimal() and len(place) < 20, label, f"it is of {list(arrays)}")
            piece = pieces.array(label, (None,), arrays[name].dtype)
            start, end = int(place), int(place) + piece.size
            pieces.check(end <= arrays[name].size, label, f"{name} has {arrays[name].size} numbers")
            arrays[name][start:end] = piece
            ranges[name].append([start, end])
    for name, found in ranges.items():
        _check_tiles(entry, name, found, arrays[name].size)
    return arrays, files


def _check_tiles(entry: Untrusted, name: str, ranges: Iterable[list[int]], size: int) -> None:
    """Refuse pieces, [first, behind], that leave out something or overlap."""
    pieces = sorted(ranges)
    bounds = [0, *(bound for piece in pieces for bound in piece), size]
    whole = all(len(piece) == 2 and piece[0] < piece[1] for piece in pieces) and bounds[::2] == bounds[1::2]
    entry.check(whole, name, f"its pieces cover 0 to {size}, each once")


def restore_sources(directory: Path, found: Sequence[Loaded]) -> None:
    """Put the sources, which belong together, into the state of the checkpoint; or leave them empty."""
    with contextlib.ExitStack() as locks:
        for loaded in found:
            locks.enter_context(loaded.source.kept.lock)
        try:
            for loaded in found:
                _read_rows(directory, loaded)
                loaded.source.kept.restore_frozen(loaded.numbers, loaded.arrays)
            for loaded in found:
                loaded.source.kept.check_contents()
        except BaseException:
            for loaded in found:
                loaded.source.kept.clear()
            raise


def _read_rows(directory: Path, loaded: Loaded) -> None:
    source = loaded.source
    for block in loaded.entry.parts("blocks"):
        start, end = block.integers("rows", 0, loaded.extent)
        tensors = Untrusted(read_tensors(directory, block, source.row_bytes * (end - start)), block.what)
        for path, array in zip(source.paths, source.rows):
            array[start:end] = tensors.array(path, (end - start, *array.shape[1:]), array.dtype)
