"""Parts of a role's state that are too large to be written anew at each checkpoint, such as replay tables.

A state is a tree. A leaf of it that is ``Saveable`` stays the role's own and goes on changing with it. Whoever keeps
the state on a disk has the leaf write what changed of it, beside the rest and under the same number; the state that is
loaded has a ``Saved`` in its place. Whoever keeps the state in memory takes ``copied``. The role restores from either.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from pathlib import Path

from starling.core.trees import Tree, map_leaves

__all__ = ["Saveable", "Saved", "copied"]


class Saveable(ABC):
    """A leaf of a state that writes itself."""

    @abstractmethod
    def save(self, directory: Path, number: int) -> None:
        """Write what changed since it was last saved or loaded there; all earlier numbers stay whole, and later ones
        go. OSError where the disk refuses: then nothing of this number is left."""

    @abstractmethod
    def retain(self, numbers: Collection[int]) -> None:
        """Delete all other numbers from where it was last saved."""

    @abstractmethod
    def copy(self) -> Tree:
        """All of it as it is now."""


class Saved(ABC):
    """What a ``Saveable`` wrote under a number."""

    @abstractmethod
    def verify(self) -> None:
        """CheckpointError where it is missing or torn."""


def copied(state: Tree) -> Tree:
    """A state whose leaves do not change when the role goes on."""
    return map_leaves(lambda leaf: leaf.copy() if isinstance(leaf, Saveable) else leaf, state)
