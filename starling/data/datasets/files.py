"""Datasets on disk: a directory of Parquet files and a JSON file with the signature.

    with DatasetWriter("data/run1", table.signature) as writer:
        writer.write_table(table)
    dataset = Dataset("data/run1")
    table = dataset.to_table(sampler="prioritized")

A column is a leaf of the signature, in the order of its elements. A dataset without its JSON file was not finished and
is refused, as is one whose files are torn.
"""

from __future__ import annotations

import importlib
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from starling.core.errors import DataError, MissingExtraError
from starling.core.spaces import Dict, Leaf
from starling.data.datasets.schema import space_from_plain, space_to_plain
from starling.data.saving.files import write_bytes
from starling.data.tables.layout import Columns
from starling.data.tables.table import Table

__all__ = ["Dataset", "DatasetWriter"]

FORMAT = 1
MANIFEST = "dataset.json"


def _arrow(module: str = "pyarrow") -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError("pyarrow", "offline") from error


def _to_arrow(array: np.ndarray) -> Any:
    """A column of rows: numbers, bytes, or lists of a fixed length."""
    pa = _arrow()
    rows, size = array.shape[0], int(np.prod(array.shape[1:], dtype=np.int64))
    flat = np.ascontiguousarray(array).reshape(rows * size)
    if array.ndim == 1:
        return pa.array(flat)
    if array.dtype == np.uint8 and size:
        return pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), rows, [None, pa.py_buffer(flat.tobytes())])
    return pa.FixedSizeListArray.from_arrays(pa.array(flat), size)


def _from_arrow(column: Any, leaf: Leaf) -> np.ndarray:
    chunk = column.combine_chunks()
    rows = len(chunk)
    if not leaf.shape:
        values = chunk.to_numpy(zero_copy_only=False)
    elif leaf.numpy_dtype == np.uint8 and leaf.size:
        values = np.frombuffer(chunk.buffers()[1], np.uint8, rows * leaf.size, chunk.offset * leaf.size)
    else:
        values = chunk.flatten().to_numpy(zero_copy_only=False)
    if values.dtype != leaf.numpy_dtype:
        raise DataError(f"a column of {values.dtype} arrived, {leaf} was expected.")
    return values.reshape(rows, *leaf.shape)


class DatasetWriter:
    """Writes batches of items; the dataset is complete when the writer is closed."""

    def __init__(self, directory: str | Path, signature: Dict, rows_per_file: int = 50_000) -> None:
        self.directory, self.signature = Path(directory), signature
        _arrow()
        if (self.directory / MANIFEST).exists():
            raise DataError(f"{self.directory} holds a dataset already; choose another directory.")
        self.directory.mkdir(parents=True, exist_ok=True)
        self._columns = Columns(signature, 1)
        self._rows_per_file = rows_per_file
        self._waiting: list[list[np.ndarray]] = []
        self._parts: list[dict[str, Any]] = []

    def write(self, items: Any) -> None:
        """Append a batch of items."""
        leaves = self._columns.flatten(items)
        self._columns.check(leaves)
        self._waiting.append([leaf.copy() for leaf in leaves])
        if sum(batch[0].shape[0] for batch in self._waiting) >= self._rows_per_file:
            self._flush()

    def write_table(self, table: Table, rows: int = 10_000) -> None:
        """Append all items of a table, the oldest first where it removes the oldest first."""
        with table.admission.lock:
            keys = table.index.keys
            slots = np.flatnonzero(keys >= 0)
            slots = slots[np.argsort(keys[slots], kind="stable")]
            for start in range(0, slots.size, rows):
                part = slots[start : start + rows]
                self.write(table.columns.tree(table.contents.read(part)))

    def _flush(self) -> None:
        if not self._waiting:
            return
        pa, parquet = _arrow(), _arrow("pyarrow.parquet")
        merged = [np.concatenate(leaves) for leaves in zip(*self._waiting)]
        self._waiting = []
        sink = pa.BufferOutputStream()
        parquet.write_table(pa.table({p: _to_arrow(a) for p, a in zip(self._columns.paths, merged)}), sink)
        content = sink.getvalue().to_pybytes()
        name = f"part-{len(self._parts):06d}.parquet"
        write_bytes(self.directory / name, content)
        entry = {"file": name, "rows": int(merged[0].shape[0]), "size": len(content), "crc32": zlib.crc32(content)}
        self._parts.append(entry)

    def close(self) -> None:
        """Write what is left, and the signature."""
        self._flush()
        manifest = {"format": FORMAT, "signature": space_to_plain(self.signature), "parts": self._parts}
        write_bytes(self.directory / MANIFEST, json.dumps(manifest, indent=1).encode())

    def __enter__(self) -> DatasetWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.close()


class Dataset:
    """A finished dataset."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        path = self.directory / MANIFEST
        try:
            manifest = json.loads(path.read_bytes())
            if manifest["format"] != FORMAT:
                raise DataError(f"{path} has the format {manifest['format']}; this version reads {FORMAT}.")
            self._parts = [(Path(p["file"]).name, int(p["rows"]), p["size"], p["crc32"]) for p in manifest["parts"]]
            signature = space_from_plain(manifest["signature"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{self.directory} is no finished dataset: {error!r}.") from error
        if not isinstance(signature, Dict):
            raise DataError(f"{path} has the signature {signature}; a dict was expected.")
        self.signature = signature
        self._columns = Columns(signature, 1)

    def __len__(self) -> int:
        return sum(rows for _, rows, _, _ in self._parts)

    def batches(self, rows: int = 10_000) -> Iterator[Any]:
        """The items in the order in which they were written, as trees of at most ``rows`` rows."""
        pa, parquet = _arrow(), _arrow("pyarrow.parquet")
        leaves = [leaf for _, leaf in self.signature.items()]
        for name, count, size, checksum in self._parts:
            try:
                content = (self.directory / name).read_bytes()
            except OSError as error:
                raise DataError(f"{self.directory / name} cannot be read: {error}.") from error
            if len(content) != size or zlib.crc32(content) != checksum:
                raise DataError(f"{self.directory / name} is torn: its {len(content)} bytes do not match the checksum.")
            table = parquet.read_table(pa.BufferReader(content))
            if table.column_names != self._columns.paths or table.num_rows != count:
                raise DataError(
                    f"{name} has {table.num_rows} rows of {table.column_names}, {count} of {self._columns.paths} were "
                    "expected; is it of another dataset?"
                )
            arrays = [_from_arrow(table.column(path), leaf) for path, leaf in zip(self._columns.paths, leaves)]
            for start in range(0, count, rows):
                yield self._columns.tree([array[start : start + rows] for array in arrays])

    def to_table(self, capacity: int | None = None, **options: Any) -> Table:
        """A table with all items; ``options`` are those of a table."""
        table = Table(self.signature, capacity or max(1, len(self)), **options)
        for batch in self.batches(min(10_000, table.capacity)):
            table.insert(batch)
        return table
