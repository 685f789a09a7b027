"""What a role's checkpoint has beside it of a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from starling.core.saveable import Saved
from starling.data.saving.manifests import Manifests

__all__ = ["SavedTable"]


@dataclass(frozen=True)
class SavedTable(Saved):
    """A table as ``SaveableTable`` wrote it."""

    directory: Path
    number: int

    def verify(self) -> None:
        Manifests(self.directory).verify(self.number)
