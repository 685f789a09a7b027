"""Checkpoints of tables on disk, taken while inserts go on.

    saver = Checkpointer("run/tables", {"replay": table})
    saver.save()                     # inserts wait for a few milliseconds at a time
    Checkpointer("run/tables", {"replay": fresh}).load()

A checkpoint is a manifest (JSON) that names block files (safetensors) with their checksums. Blocks are written beside,
fsynced, and only then named by a manifest that is renamed into place. A block whose rows did not change since this
checkpointer's last save or load is named again, not written again. The two newest checkpoints are kept; loading takes
the newest that is whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from starling.core.errors import CheckpointError
from starling.core.trees import items, nest
from starling.data.files import read_tensors, write_bytes, write_tensors
from starling.data.pools import AnyFramePool
from starling.data.table import Table

__all__ = ["Checkpointer"]

FORMAT = 1
KEPT = 2
MANIFEST = re.compile(r"manifest-(\d{8})\.json")


@dataclass
class _Source:
    """Something whose rows are saved block by block: a table, or a pool of frames."""

    name: str
    paths: list[str]
    arrays: list[np.ndarray]
    lock: threading.Lock
    freeze: Callable[[], Any]
    thaw: Callable[[], None]
    restore: Callable[[Mapping[str, Any]], None]
    describe: dict[str, Any]
    stamps: Callable[[dict[str, Any]], np.ndarray]

    @property
    def row_bytes(self) -> int:
        return max(1, sum(array[:1].nbytes for array in self.arrays))


def _table_source(name: str, table: Table) -> _Source:
    def stamps(state: dict[str, Any]) -> np.ndarray:
        """A number per slot that differs whenever its contents do."""
        if state["counters"]["ring"]:
            return table.index.ring_keys(state["counters"]["inserts"])
        return np.asarray(state["index"]["keys"])

    layout = [f"{p}: {d}{list(s)}" for p, s, d in zip(table.columns.paths, table.columns.shapes, table.columns.dtypes)]
    describe = {
        "capacity": table.capacity,
        "columns": layout,
        "sampler": [table.sampler.name, table.sampler.alpha],
        "remover": [table.remover.name, table.remover.alpha],
        "max_times_sampled": table.index.max_times,
    }
    return _Source(
        name, table.columns.paths, table.columns.arrays, table.gate.lock,
        table.freeze, table.thaw, table.restore_frozen, describe, stamps,
    )  # fmt: skip


def _pool_source(name: str, pool: AnyFramePool) -> _Source:
    describe = {"kind": type(pool).__name__, "frames": pool.frames, "rows": len(pool.rows), "space": str(pool.space)}
    return _Source(
        name, ["frames"], [pool.rows], pool.lock, pool.freeze, pool.thaw, pool.restore_frozen, describe,
        lambda state: np.asarray(state["generation"]),
    )  # fmt: skip


class Checkpointer:
    """Saves tables, and the pools that they share, to a directory, and loads them again.

    ``block_bytes`` is how much is copied while inserts wait. ``compress`` squeezes the blocks without loss, which pays
    for images. ``also`` returns a further tree of arrays and numbers, taken at the same moment (the adders' states,
    say); ``load`` returns it. ``guard`` is a lock to be held at that moment, taken before the tables' own.
    """

    def __init__(
        self,
        directory: str | Path,
        tables: Mapping[str, Table],
        *,
        also: Callable[[], Any] | None = None,
        compress: bool = False,
        block_bytes: int = 8_000_000,
        guard: threading.Lock | None = None,
    ) -> None:
        self.directory = Path(directory)
        self._also, self._compress, self._block_bytes = also, compress, block_bytes
        self._sources = [_table_source(name, table) for name, table in sorted(tables.items())]
        pools: dict[int, _Source] = {}
        for name, table in sorted(tables.items()):
            for path, pool in table.distinct_pools().items():
                pools.setdefault(id(pool), _pool_source(f"{name}@{path}", pool))
        self._sources += pools.values()
        self._known: dict[tuple[str, int], tuple[str, dict[str, Any]]] = {}  # (source, block) → digest, entry
        self._saving = threading.Lock()
        self._guard = guard

    def _block_rows(self, source: _Source) -> int:
        return max(1, self._block_bytes // source.row_bytes)

    def save(self) -> Path:
        """Write a checkpoint and return its manifest; the previous one stays until this one is complete."""
        with self._saving:
            self.directory.mkdir(parents=True, exist_ok=True)
            number = max(self._numbers(), default=0) + 1
            with contextlib.ExitStack() as locks:  # all at one moment
                if self._guard is not None:
                    locks.enter_context(self._guard)
                for source in self._sources:
                    locks.enter_context(source.lock)
                frozen = [source.freeze() for source in self._sources]
                also = self._also() if self._also else None
            try:
                entries = {
                    source.name: self._save_source(number, source, state, snapshot)
                    for source, (state, snapshot) in zip(self._sources, frozen)
                }
            finally:
                for source in self._sources:
                    source.thaw()
            manifest: dict[str, Any] = {"format": FORMAT, "number": number, "sources": entries}
            if also is not None:
                manifest["also"] = self._write_tree(f"{number:08d}-also.safetensors", also)
            text = json.dumps(manifest, indent=1, sort_keys=True)
            signed = json.dumps({"digest": hashlib.sha256(text.encode()).hexdigest(), "manifest": text})
            path = self.directory / f"manifest-{number:08d}.json"
            write_bytes(path, signed.encode())
            self._prune()
            return path

    def _save_source(self, number: int, source: _Source, state: dict[str, Any], snapshot: Any) -> dict[str, Any]:
        stamps = source.stamps(state)
        rows, extent = self._block_rows(source), snapshot.extent
        blocks, extras = [], []
        for block, start in enumerate(range(0, extent, rows)):
            end = min(start + rows, extent)
            digest = hashlib.blake2b(stamps[start:end].tobytes(), digest_size=16).hexdigest()
            known = self._known.get((source.name, block))
            changed = known is None or known[0] != digest
            with source.lock:
                copies, extra = snapshot.copy(start, end, changed)
            extras.append(extra)
            if known is not None and not changed:
                blocks.append(known[1])
                continue
            name = f"{number:08d}-{source.name}-{block:06d}.safetensors"
            entry = write_tensors(self.directory / name, dict(zip(source.paths, copies)), self._compress)
            entry = {"rows": [start, end], **entry}
            self._known[source.name, block] = (digest, entry)
            blocks.append(entry)
        for name in extras[0] if extras else ():
            state["index"][name] = np.concatenate([extra[name] for extra in extras])
        small = self._write_tree(f"{number:08d}-{source.name}.safetensors", state)
        return {"describe": source.describe, "block_rows": rows, "blocks": blocks, "small": small}

    def _write_tree(self, name: str, tree: Any) -> dict[str, Any]:
        flat = {path: np.asarray(leaf) for path, leaf in items(tree)}
        return write_tensors(self.directory / name, flat, False)

    def _numbers(self) -> list[int]:
        if not self.directory.is_dir():
            return []
        found = (MANIFEST.fullmatch(path.name) for path in self.directory.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def _prune(self) -> None:
        """Delete all but the newest checkpoints and the files that they name."""
        numbers = self._numbers()
        kept: set[str] = set()
        for number in numbers[-KEPT:]:
            with contextlib.suppress(CheckpointError):  # a torn one names nothing
                kept |= _files(self._read_manifest(number))
        for number in numbers[:-KEPT]:
            (self.directory / f"manifest-{number:08d}.json").unlink(missing_ok=True)
        for path in self.directory.iterdir():
            if path.suffix in (".safetensors", ".partial") and path.name not in kept:
                path.unlink(missing_ok=True)

    def _read_manifest(self, number: int) -> dict[str, Any]:
        path = self.directory / f"manifest-{number:08d}.json"
        try:
            signed = json.loads(path.read_bytes())
            text = signed["manifest"]
            whole = hashlib.sha256(text.encode()).hexdigest() == signed["digest"]
            manifest: dict[str, Any] = json.loads(text)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{path} cannot be read as a manifest: {error}.") from error
        if not whole:
            raise CheckpointError(f"{path} is torn: its text does not match its digest.")
        if manifest.get("format") != FORMAT:
            raise CheckpointError(f"{path} has the format {manifest.get('format')}; this version reads {FORMAT}.")
        return manifest

    @property
    def exists(self) -> bool:
        """Whether the directory has a checkpoint, whole or not."""
        return bool(self._numbers())

    def load(self) -> Any:
        """Restore the newest whole checkpoint; returns the further tree that was saved with it, or None."""
        reasons: list[str] = []
        for number in reversed(self._numbers()):
            try:
                manifest = self._read_manifest(number)
                self._verify(manifest)
            except CheckpointError as error:
                reasons.append(str(error))
                continue
            return self._restore(manifest)
        if reasons:
            raise CheckpointError(f"no whole checkpoint in {self.directory}: {' '.join(reasons)}")
        raise CheckpointError(f"no checkpoint in {self.directory}.")

    def saved_trees(self) -> list[Any]:
        """The further trees of all whole checkpoints that are kept."""
        trees = []
        for number in self._numbers():
            with contextlib.suppress(CheckpointError):
                manifest = self._read_manifest(number)
                trees.append(nest(read_tensors(self.directory, manifest["also"])))
        return trees

    def _verify(self, manifest: dict[str, Any]) -> None:
        """Raise unless every file is there and whole."""
        for entry in _entries(manifest):
            read_tensors(self.directory, entry)

    def _restore(self, manifest: dict[str, Any]) -> Any:
        theirs = manifest["sources"]
        if set(theirs) != {source.name for source in self._sources}:
            raise CheckpointError(
                f"the checkpoint holds {sorted(theirs)}, {sorted(s.name for s in self._sources)} was expected."
            )
        for source in self._sources:
            saved = theirs[source.name]["describe"]
            if saved != source.describe:
                raise CheckpointError(f"the checkpoint's {source.name!r} is {saved}, this one {source.describe}.")
        for source in self._sources:
            entry = theirs[source.name]
            state = nest(read_tensors(self.directory, entry["small"]))
            state.setdefault("index", {})
            stamps = source.stamps(state)
            with source.lock:
                for block, part in enumerate(entry["blocks"]):
                    start, end = part["rows"]
                    tensors = read_tensors(self.directory, part)
                    for path, array in zip(source.paths, source.arrays):
                        array[start:end] = tensors[path]
                    if entry["block_rows"] == self._block_rows(source):
                        digest = hashlib.blake2b(stamps[start:end].tobytes(), digest_size=16).hexdigest()
                        self._known[source.name, block] = (digest, part)
                source.restore(state)
        return nest(read_tensors(self.directory, manifest["also"])) if "also" in manifest else None


def _entries(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    found = [part for entry in manifest["sources"].values() for part in (*entry["blocks"], entry["small"])]
    return [*found, manifest["also"]] if "also" in manifest else found


def _files(manifest: dict[str, Any]) -> set[str]:
    return {entry["file"] for entry in _entries(manifest)}
