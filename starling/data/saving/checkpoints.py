"""Checkpoints of tables on disk, taken while inserts go on.

    saver = Checkpointer("run/tables", {"replay": table})
    saver.save(number)               # inserts wait for a few milliseconds at a time
    Checkpointer("run/tables", {"replay": fresh}).load(number)

Numbers are the caller's, or count by themselves. Who saves more than tables saves these first, then the rest under the
same number, and calls ``retain`` with the numbers of the rest; killed in between, it goes on with ``load(number)`` of
the newest that both have.

A checkpoint is a manifest (JSON) that names block files (safetensors) with their checksums. Blocks are written and
fsynced, and only then named by a manifest that is renamed into place. A block that did not change since this
checkpointer's last save or load is named again, not written again. A process that is killed while it saves leaves the
checkpoints before: loading takes the newest that is whole.

Nothing is copied at the moment that a checkpoint shows: rows and arrays are frozen, and copied on write.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from starling.core.errors import CheckpointError, ConfigError
from starling.core.trees import items
from starling.data.saving.files import digest_of, read_tree, write_tensors
from starling.data.saving.loading import Loaded, Written, read_source, restore_sources
from starling.data.saving.manifests import Manifests
from starling.data.saving.sources import LARGEST_PIECE, Source, batches, sources_of
from starling.data.saving.warm_up import warm_up
from starling.data.tables.copy_on_write import FrozenArrays
from starling.data.tables.snapshots import Frozen
from starling.data.tables.table import Table
from starling.data.untrusted import Untrusted

__all__ = ["Checkpointer"]

BREATH = 0.0005  # seconds between two holds of a lock: it goes to whoever asks next, which would be the saver again


class Checkpointer:
    """Saves tables, and the pools that they share, to a directory, and loads them again.

    ``block_bytes`` is how much is copied while inserts wait. ``compress`` compresses the blocks, which pays for
    images. ``also`` returns a further tree of arrays and numbers, taken at the same moment (the adders' states,
    say); ``load`` returns it. ``guard`` is a lock to be held at that moment, taken before the tables' own. The
    newest ``keep`` checkpoints stay; None: all, until ``retain``. ``alone`` says that nobody uses the tables while they
    are saved: then nothing is compiled ahead for others, and no breath is left to them.
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
        keep: int | None = 2,
        alone: bool = False,
    ) -> None:
        if keep is not None and keep < 1:
            raise ConfigError(f"keep={keep}; at least the newest checkpoint stays.")
        self.directory = Path(directory)
        self._also, self._compress, self._block_bytes = also, compress, block_bytes
        self._breath, self._alone = 0.0 if alone else BREATH, alone
        self._tables, self._sources = list(tables.values()), sources_of(tables)
        self._manifests = Manifests(self.directory, keep)
        self._known: dict[tuple[str, str, int], Written] = {}  # source, part, block → digest, entry
        self._saving = threading.Lock()
        self._guard = guard

    def _block_rows(self, source: Source) -> int:
        return max(1, self._block_bytes // source.row_bytes)

    def numbers(self) -> list[int]:
        """The numbers of the checkpoints in the directory, the oldest first, whole or not."""
        return self._manifests.numbers()

    def save(self, number: int | None = None) -> Path:
        """Write a checkpoint and return its manifest; the previous ones stay until this one is complete.

        ``number`` is larger than those of all checkpoints in the directory; without it, by one.
        """
        with self._saving:
            found = self.numbers()
            number = max(found, default=0) + 1 if number is None else number
            if found and number <= found[-1]:
                raise CheckpointError(
                    f"number={number}, and {self.directory} has {found}; a checkpoint is newer than those "
                    f"before it. To go back, call rewind({number - 1}) first."
                )
            if not self._alone:
                warm_up(self._tables)
            self.directory.mkdir(parents=True, exist_ok=True)
            frozen = [source.kept.prepare() for source in self._sources]
            try:
                with contextlib.ExitStack() as locks:  # all at one moment
                    if self._guard is not None:
                        locks.enter_context(self._guard)
                    for source in self._sources:
                        locks.enter_context(source.kept.lock)
                    for source, moment in zip(self._sources, frozen):
                        source.kept.freeze(moment)
                    also = self._also() if self._also else None
                content: dict[str, Any] = {
                    "sources": {
                        source.name: self._save_source(number, source, moment)
                        for source, moment in zip(self._sources, frozen)
                    }
                }
            finally:
                for source in self._sources:
                    with source.kept.lock:
                        source.kept.thaw()
            if also is not None:
                content["also"] = self._write_tree(f"{number:08d}-also.safetensors", also)
            return self._manifests.write(number, content)

    def _save_source(self, number: int, source: Source, moment: Frozen) -> dict[str, Any]:
        pieces, stamped = self._save_arrays(number, source, moment.arrays)
        lengths = {name: [moment.arrays.length(name), moment.arrays.dtype(name).str] for name in moment.arrays.ranges}
        return {
            "describe": source.describe,
            "arrays": {"lengths": lengths, "pieces": pieces},
            "block_rows": self._block_rows(source),
            "blocks": self._save_rows(number, source, moment, source.stamps(moment.numbers, stamped)),
            "small": self._write_tree(f"{number:08d}-{source.name}.safetensors", moment.numbers),
        }

    def _save_arrays(
        self, number: int, source: Source, arrays: FrozenArrays
    ) -> tuple[list[dict[str, Any]], np.ndarray | None]:
        """Write the arrays; returns the entries, and the array that tells which rows have changed."""
        entries, stamped = [], []
        for i, batch in enumerate(batches(arrays, self._block_bytes)):
            copies = {}
            for name, start, end in batch:
                out = np.full(end - start, 0, arrays.dtype(name))  # memory is found before others wait
                with source.kept.lock:
                    copies[f"{name}:{start}"] = arrays.copy(name, start, end, out)
                time.sleep(self._breath)
            stamped += [copies[f"{name}:{start}"] for name, start, _ in batch if name == source.stamped]
            name = f"{number:08d}-{source.name}-arrays-{i:06d}.safetensors"
            entries.append(self._write_block((source.name, "arrays", i), digest_of(copies), name, copies))
        return entries, np.concatenate(stamped) if stamped else None

    def _save_rows(self, number: int, source: Source, moment: Frozen, stamps: np.ndarray) -> list[dict[str, Any]]:
        rows, extent = self._block_rows(source), moment.rows.extent
        entries = []
        for block, start in enumerate(range(0, extent, rows)):
            end = min(start + rows, extent)
            digest = digest_of({"stamps": stamps[start:end]})
            if self._is_known((source.name, "rows", block), digest):
                with source.kept.lock:
                    moment.rows.skip(end)
                entries.append(self._known[source.name, "rows", block][1])
                continue
            copies = moment.rows.room(end - start)
            step = max(1, LARGEST_PIECE // source.row_bytes)
            for first in range(start, end, step):
                behind = min(first + step, end)
                with source.kept.lock:
                    moment.rows.copy(first, behind, [copy[first - start : behind - start] for copy in copies])
                time.sleep(self._breath)
            name = f"{number:08d}-{source.name}-{block:06d}.safetensors"
            tensors = dict(zip(source.paths, copies))
            entries.append(self._write_block((source.name, "rows", block), digest, name, tensors, [start, end]))
        return entries

    def _is_known(self, key: tuple[str, str, int], digest: str) -> bool:
        return key in self._known and self._known[key][0] == digest

    def _write_block(
        self,
        key: tuple[str, str, int],
        digest: str,
        name: str,
        tensors: dict[str, np.ndarray],
        rows: list[int] | None = None,
    ) -> dict[str, Any]:
        """Write a block, unless it is the one that was written under this key before; returns its entry."""
        if not self._is_known(key, digest):
            entry = write_tensors(self.directory / name, tensors, self._compress)
            self._known[key] = (digest, entry if rows is None else {"rows": rows, **entry})
        return self._known[key][1]

    def _write_tree(self, name: str, tree: Any) -> dict[str, Any]:
        flat = {path: np.asarray(leaf) for path, leaf in items(tree)}
        return write_tensors(self.directory / name, flat, False)

    def load(self, number: int | None = None) -> Any:
        """Restore a checkpoint, or the newest that is whole; returns the further tree that was saved with it, or None.

        A checkpoint that is torn, or of other tables, changes nothing.
        """
        found = self.numbers()
        if number is not None and number not in found:
            raise CheckpointError(f"no checkpoint {number} in {self.directory}, which has {found}.")
        reasons: list[str] = []
        for candidate in reversed(found) if number is None else [number]:
            try:
                manifest = self._manifests.verify(candidate)
            except CheckpointError as error:
                reasons.append(str(error))
                continue
            return self._restore(manifest)
        if reasons:
            raise CheckpointError(f"no whole checkpoint in {self.directory}: {' '.join(reasons)}")
        raise CheckpointError(f"no checkpoint in {self.directory}.")

    def rewind(self, number: int) -> None:
        """Delete the checkpoints that are newer than ``number``, so that the next one may take its place after it."""
        self.retain([found for found in self.numbers() if found <= number])

    def retain(self, numbers: Collection[int]) -> None:
        """Delete all other checkpoints."""
        with self._saving:
            named = self._manifests.retain(numbers)
            self._known = {key: known for key, known in self._known.items() if known[1]["file"] in named}

    def saved_trees(self) -> list[Any]:
        """The further trees of all whole checkpoints that are kept."""
        trees = []
        for number in self._manifests.numbers():
            with contextlib.suppress(CheckpointError):
                trees.append(read_tree(self.directory, self._manifests.read(number).part("also")))
        return trees

    def _restore(self, manifest: Untrusted) -> Any:
        theirs = manifest.part("sources")
        if set(theirs) != {source.name for source in self._sources}:
            raise CheckpointError(
                f"the checkpoint holds {sorted(theirs)}, {sorted(s.name for s in self._sources)} was expected."
            )
        for source in self._sources:
            saved = theirs.part(source.name).get("describe")
            if saved != source.describe:
                raise CheckpointError(
                    f"the checkpoint's {source.name!r} is {saved!r:.500}, this one {source.describe}."
                )
        also = read_tree(self.directory, manifest.part("also")) if "also" in manifest else None
        found = [read_source(self.directory, source, theirs.part(source.name)) for source in self._sources]
        self._known.clear()  # keys that come again need not be of the same items
        restore_sources(self.directory, found)
        for loaded in found:
            self._remember(loaded)
        return also

    def _remember(self, loaded: Loaded) -> None:
        """What was loaded need not be written again."""
        source, entry = loaded.source, loaded.entry
        for i, written in enumerate(loaded.pieces):
            self._known[source.name, "arrays", i] = written
        if entry.integer("block_rows") == self._block_rows(source):
            for block, part in enumerate(entry.parts("blocks")):
                start, end = part.integers("rows")
                digest = digest_of({"stamps": source.live[start:end]})
                self._known[source.name, "rows", block] = (digest, dict(part.plain))
