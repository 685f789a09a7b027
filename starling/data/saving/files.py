"""Files that are whole or not there: written beside, fsynced, renamed; tensors with a checksum and compression."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from starling.core.errors import CheckpointError, ConfigError
from starling.core.memory import human_bytes

__all__ = [
    "map_file",
    "read_tensors",
    "sync_directory",
    "write_bytes",
    "write_tensors",
]

DTYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "float16": "F16",
    "uint32": "U32", "int32": "I32", "float32": "F32", "uint64": "U64", "int64": "I64", "float64": "F64",
}  # fmt: skip


def sync_directory(directory: Path) -> None:
    """Make renames in a directory durable, where the system offers it."""
    if os.name != "posix":
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write_synced(path: Path, *parts: bytes | memoryview) -> None:
    with open(path, "wb", buffering=0) as file:
        for part in parts:
            left = memoryview(part)
            while len(left):
                left = left[file.write(left) :]
        os.fsync(file.fileno())


def write_bytes(path: Path, content: bytes) -> None:
    """Put ``content`` into a file that appears under its name only when all of it is on disk."""
    beside = path.with_name(path.name + ".partial")
    _write_synced(beside, content)
    os.replace(beside, path)
    sync_directory(path.parent)


def map_file(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """An array in a new file, all of it reserved: a full disk is an error here and not a crash at some later write."""
    path.parent.mkdir(parents=True, exist_ok=True)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    free = shutil.disk_usage(path.parent).free
    if size > free:
        raise ConfigError(
            f"{path} needs {human_bytes(size)}; {human_bytes(free)} is free on its disk. Lower the capacity or choose "
            "another directory."
        )
    array = np.memmap(path, dtype, "w+", shape=shape)
    allocate: Any = getattr(os, "posix_fallocate", None)
    if allocate is not None:
        handle = os.open(path, os.O_RDWR)
        try:
            allocate(handle, 0, size)
        finally:
            os.close(handle)
    return array


def write_tensors(path: Path, tensors: dict[str, np.ndarray], compress: bool) -> dict[str, Any]:
    """Write arrays to a safetensors file; returns what ``read_tensors`` needs to read them back.

    The bytes are on disk; that the name is there as well is up to the caller: ``sync_directory``.
    """
    entry: dict[str, Any] = {"file": path.name}
    if compress:
        entry["compressed"] = {name: [array.dtype.str, list(array.shape)] for name, array in tensors.items()}
        tensors = {name: np.frombuffer(zlib.compress(array.tobytes(), 1), np.uint8) for name, array in tensors.items()}
    parts = _as_safetensors(tensors)
    checksum, size = 0, 0
    for part in parts:
        checksum, size = zlib.crc32(part, checksum), size + len(part)
    _write_synced(path, *parts)
    scalars = [name for name, array in tensors.items() if array.ndim == 0 and not compress]
    return {**entry, "size": size, "crc32": checksum, "scalars": scalars}


def _as_safetensors(tensors: dict[str, np.ndarray]) -> list[bytes | memoryview]:
    """The parts of a safetensors file: its header, and the arrays' own memory.

    The library's writer copies everything first, and holds Python's lock while it does: other threads would wait.
    """
    header: dict[str, Any] = {}
    offset, parts = 0, []
    for name, array in sorted(tensors.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])):  # keeps it aligned
        flat = np.ascontiguousarray(array)  # gives numbers a dimension
        code = DTYPES[flat.dtype.newbyteorder("=").name]
        header[name] = {"dtype": code, "shape": list(flat.shape), "data_offsets": [offset, offset + flat.nbytes]}
        offset += flat.nbytes
        if flat.nbytes:
            parts.append(flat.reshape(-1).view(np.uint8).data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little") + text, *parts]


def read_tensors(directory: Path, entry: dict[str, Any]) -> dict[str, np.ndarray]:
    """Read arrays back; CheckpointError where the file is missing, torn or another."""
    path = directory / Path(entry["file"]).name
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from error
    if len(content) != entry["size"] or zlib.crc32(content) != entry["crc32"]:
        raise CheckpointError(f"{path} is torn: {len(content)} bytes do not match the checksum of {entry['size']}.")
    try:
        tensors: dict[str, np.ndarray] = load(content)
    except SafetensorError as error:
        raise CheckpointError(f"{path} is not a safetensors file: {error}.") from error
    if "compressed" in entry:
        tensors = {
            name: np.frombuffer(zlib.decompress(tensors[name].tobytes()), np.dtype(dtype)).reshape(shape)
            for name, (dtype, shape) in entry["compressed"].items()
        }
    for name in entry["scalars"]:  # ascontiguousarray gave numbers a dimension
        tensors[name] = tensors[name].reshape(())
    return tensors
