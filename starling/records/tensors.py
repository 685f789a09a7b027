"""Arrays as a safetensors stream, written and read in one pass with their checksum.

The format is a length (8 bytes), a JSON header and the arrays' bytes without gaps. We stream it ourselves because
the library hands back no checksum and no file to sync; the tests hold both directions against the library.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from io import FileIO
from typing import Any

import numpy as np

from starling.core.errors import CheckpointError
from starling.core.memory import available_memory, human_bytes
from starling.records.files import write_all

__all__ = ["can_store", "header_of", "read_tensors", "write_tensors"]

_NAMES = {
    **{np.dtype(f"<f{n}"): f"F{8 * n}" for n in (2, 4, 8)},
    **{np.dtype(f"<i{n}"): f"I{8 * n}" for n in (1, 2, 4, 8)},
    **{np.dtype(f"<u{n}"): f"U{8 * n}" for n in (1, 2, 4, 8)},
    np.dtype("<c8"): "C64",
    np.dtype("bool"): "BOOL",
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
_HEADER_LIMIT = 100_000_000  # bytes; the safetensors library refuses longer headers too
_DIMENSIONS_LIMIT = 64  # of an array, as NumPy has it


def can_store(dtype: np.dtype) -> bool:
    """Whether the format has a name for this dtype."""
    return dtype.newbyteorder("<") in _NAMES


def header_of(arrays: Mapping[str, np.ndarray]) -> tuple[bytes, list[str]]:
    """The stream's opening bytes, and the order in which the arrays follow."""
    # Wide elements first: every array then starts at a multiple of its element size.
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header: dict[str, Any] = {}
    end = 0
    for name in order:
        start, end = end, end + arrays[name].nbytes
        dtype = _NAMES[arrays[name].dtype.newbyteorder("<")]
        header[name] = {"dtype": dtype, "shape": list(arrays[name].shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, order


def write_tensors(fd: int, arrays: Mapping[str, np.ndarray]) -> str:
    """Write the stream; its SHA-256. Contiguous little-endian arrays are written from where they lie."""
    opening, order = header_of(arrays)
    digest = hashlib.sha256(opening)
    write_all(fd, opening)
    for name in order:
        array = arrays[name]
        data = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data
        digest.update(data)
        write_all(fd, data)
    return digest.hexdigest()


def read_tensors(file: FileIO, size: int, where: str) -> tuple[dict[str, np.ndarray], str]:
    """Read a stream of ``size`` bytes; the arrays and the SHA-256. Nothing is allocated beyond the file's size."""
    length_bytes = _exactly(file, 8, where)
    length = int.from_bytes(length_bytes, "little")
    if length > min(size - 8, _HEADER_LIMIT):
        raise CheckpointError(
            f"{where} declares a header of {length:,} bytes in a file of {size:,}: torn or malicious."
        )
    room = available_memory()
    if room is not None and size > room:
        raise CheckpointError(
            f"{where} takes {human_bytes(size)} of memory, {human_bytes(room)} is available; free some."
        )
    header_bytes = _exactly(file, length, where)
    digest = hashlib.sha256(length_bytes + header_bytes)
    arrays: dict[str, np.ndarray] = {}
    for name, dtype, shape in _entries(header_bytes, size - 8 - length, where):
        try:
            array = np.empty(shape, dtype)
        except (ValueError, OverflowError, MemoryError) as reason:
            raise CheckpointError(f"{where}: array {name!r} cannot have shape {list(shape)[:8]}: {reason}.") from reason
        view = array.reshape(-1).view(np.uint8)
        _fill(file, view.data, where)
        digest.update(view.data)
        if dtype == np.bool_ and view.size and view.max() > 1:
            raise CheckpointError(f"{where}: array {name!r} holds bytes that are no truth values.")
        arrays[name] = array
    return arrays, digest.hexdigest()


def _entries(header_bytes: bytes, size: int, where: str) -> list[tuple[str, np.dtype, tuple[int, ...]]]:
    """The arrays that the header declares, in file order, once they are known to fill it exactly."""
    try:
        header = json.loads(header_bytes, object_pairs_hook=_unique)
        header.pop("__metadata__", None)
        entries = sorted(header.items(), key=lambda entry: (entry[1]["data_offsets"], entry[0]))
        end, found = 0, []
        for name, entry in entries:
            dtype, shape, offsets = _DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
            if not isinstance(shape, list) or len(shape) > _DIMENSIONS_LIMIT:  # before they are multiplied
                raise ValueError(f"the shape of array {name!r} is no list of at most {_DIMENSIONS_LIMIT} dimensions")
            if not all(type(n) is int and n >= 0 for n in (*shape, *offsets)):
                raise ValueError(f"array {name!r} has sizes that are not whole numbers")
            start, end = end, end + math.prod(shape) * dtype.itemsize
            if offsets != [start, end]:
                raise ValueError(f"array {name!r} of {end - start:,} bytes claims the place {offsets}")
            found.append((name, dtype, tuple(shape)))
        if end != size:
            raise ValueError(f"the arrays take {end:,} bytes, the file has {size:,}")
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as reason:
        raise CheckpointError(f"{where} has a header that fits no safetensors file: {reason}.") from reason
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object in which no name stands twice: of two, readers disagree on which counts."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands there twice")
    return found


def _exactly(file: FileIO, count: int, where: str) -> bytes:
    data = bytearray(count)
    _fill(file, memoryview(data), where)
    return bytes(data)


def _fill(file: FileIO, view: memoryview, where: str) -> None:
    while view:
        got = file.readinto(view)
        if not got:
            raise CheckpointError(f"{where} ends {len(view):,} bytes too early: it is torn.")
        view = view[got:]
