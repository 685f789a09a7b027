"""A table as a leaf of a role's state: a checkpoint writes only the blocks of it that changed since the last one."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from starling.core.saveable import Saveable, copied
from starling.core.trees import Tree
from starling.data.saving.checkpoints import Checkpointer
from starling.data.saving.saved import SavedTable
from starling.data.tables.table import Table

__all__ = ["SaveableTable"]

BLOCK = 1_000_000  # bytes: about as much is written for a single row, and files are not yet too many


class SaveableTable(Saveable):
    """A table that nobody uses while it is saved.

    state = {"table": saveable}      # a leaf of what a role has saved
    saveable.restore(state["table"])  # of what it is given back
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._saver: Checkpointer | None = None  # remembers which blocks are on the disk

    def _saver_in(self, directory: Path) -> Checkpointer:
        if self._saver is None or self._saver.directory != directory:
            self._saver = Checkpointer(directory, {"table": self._table}, block_bytes=BLOCK, keep=None, alone=True)
        return self._saver

    def save(self, directory: Path, number: int) -> None:
        saver = self._saver_in(directory)
        if number <= max(saver.numbers(), default=-1):  # of a history that was given up
            saver.rewind(number - 1)
        try:
            saver.save(number)
        except OSError:
            saver.rewind(number - 1)
            raise

    def retain(self, numbers: Collection[int]) -> None:
        if self._saver is not None:
            self._saver.retain(numbers)

    def copy(self) -> Tree:
        return self._table.state()

    def restore(self, kept: SavedTable | Tree) -> None:
        """Go on from such a leaf of a state: as it was loaded, copied, or another's own."""
        if isinstance(kept, SavedTable):
            self._saver_in(kept.directory).load(kept.number)
        else:
            self._table.restore(copied(kept))
            self._saver = None  # what is on the disk is of another history
