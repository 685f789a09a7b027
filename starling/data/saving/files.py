"""Files that are whole or not there: written beside, fsynced, renamed; tensors with a checksum and compression."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import stat
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from starling.core.errors import CheckpointError, ConfigError
from starling.core.memory import human_bytes
from starling.core.trees import Tree, nest
from starling.data.untrusted import Untrusted

__all__ = [
    "digest_of",
    "dtype_of",
    "file_name",
    "map_file",
    "read_tensors",
    "read_tree",
    "sync_directory",
    "verify_tensors",
    "write_bytes",
    "write_tensors",
]

DTYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "float16": "F16",
    "uint32": "U32", "int32": "I32", "float32": "F32", "uint64": "U64", "int64": "I64", "float64": "F64",
}  # fmt: skip
CODES = {np.dtype(name).str for name in DTYPES}
FILE = re.compile(r"[^/\0]+\.safetensors")


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


def digest_of(arrays: Mapping[str, np.ndarray]) -> str:
    """Differs whenever the names, types or contents do."""
    digest = hashlib.blake2b(digest_size=16)
    for label in sorted(arrays):
        digest.update(f"{label} {arrays[label].dtype}".encode())
        digest.update(np.ascontiguousarray(arrays[label]).data)
    return digest.hexdigest()


def file_name(entry: Untrusted) -> str:
    """The name of an entry's file, which lies in the directory of the manifest."""
    name = entry.text("file")
    entry.check(FILE.fullmatch(name), "file", "it is the plain name of a safetensors file")
    return name


def verify_tensors(directory: Path, entry: Untrusted) -> dict[str, np.ndarray]:
    """The arrays as they lie in the file; CheckpointError where it is missing, torn or another."""
    path, size = directory / file_name(entry), entry.integer("size")
    checksum = entry.integer("crc32", 0, 2**32 - 1)
    try:
        found = path.stat()
        content = path.read_bytes() if stat.S_ISREG(found.st_mode) and found.st_size == size else b""
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from error
    if len(content) != size or zlib.crc32(content) != checksum:
        raise CheckpointError(
            f"{path} is torn: {found.st_size} bytes do not match the checksum of {size}. Load an older checkpoint."
        )
    try:
        tensors: dict[str, np.ndarray] = load(content)
    except (SafetensorError, KeyError, ValueError) as error:
        raise CheckpointError(f"{path} is not a safetensors file that can be read: {error}.") from error
    return tensors


def read_tensors(directory: Path, entry: Untrusted, most: int = 0) -> dict[str, np.ndarray]:
    """Read arrays back; CheckpointError where the file is missing, torn or another. Compressed ones take ``most``
    bytes when they are not, or less."""
    tensors = verify_tensors(directory, entry)
    if "compressed" in entry:
        tensors = _decompress(Untrusted(tensors, entry.what), entry.part("compressed"), most)
    for name in entry.texts("scalars"):  # ascontiguousarray gave numbers a dimension
        entry.check(name in tensors and tensors[name].size == 1, "scalars", "its names are those of numbers")
        tensors[name] = tensors[name].reshape(())
    return tensors


def _decompress(packed: Untrusted, entry: Untrusted, most: int) -> dict[str, np.ndarray]:
    found = {}
    for name in entry:
        dtype, shape = dtype_of(entry, name, 0), entry.get(name)[1]
        fits = isinstance(shape, list) and all(type(n) is int and 0 <= n <= most for n in shape)
        size = math.prod(shape) * dtype.itemsize if fits else most + 1
        entry.check(size <= most, name, f"all that was compressed takes {most} bytes at most")
        most -= size
        try:
            content = zlib.decompressobj().decompress(packed.array(name, (None,), np.uint8).tobytes(), size + 1)
        except zlib.error as error:
            raise CheckpointError(f"{packed.what}: {name!r} cannot be decompressed: {error}.") from error
        entry.check(len(content) == size, name, f"it takes {size} bytes when it is decompressed")
        found[name] = np.frombuffer(content, dtype).reshape(shape)
    return found


def dtype_of(entry: Untrusted, name: str, place: int = 1) -> np.dtype[Any]:
    """The type that stands at a place, 0 or 1, of the pair ``name``."""
    pair = entry.get(name)
    code = pair[place] if isinstance(pair, list) and len(pair) == 2 else None
    entry.check(isinstance(code, str) and code in CODES, name, f"it has a size and one of the types {sorted(CODES)}")
    return np.dtype(code)


def read_tree(directory: Path, entry: Untrusted) -> Tree:
    """The tree whose leaves, by path, are the arrays of a file."""
    tensors = read_tensors(directory, entry)
    for path in tensors:
        above = (path[:i] for i, letter in enumerate(path) if letter == ".")
        entry.check(not any(parent in tensors for parent in above), path, "no leaf lies within another")
    return nest(tensors)
