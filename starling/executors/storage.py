"""Where the items of a formation's edges lie, and which roles share what of them.

A queue has lanes, one for each pair of sender and receiver; a broadcast has cells, in which each reader sees the newest
value of a publisher; a collective has one group.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Protocol

from starling.core.effects import Latest, Newest
from starling.core.trees import Tree
from starling.formations import Edge, Formation, RoleId

__all__ = ["Cell", "Group", "Lane", "Part", "Promise", "Storage", "parts_of", "publisher_of", "readers_of", "resolved"]


class Lane(Protocol):
    """A queue between two roles. Its items are numbered from 0."""

    def put(self, item: Tree) -> bool:
        """Send the item; False where the lane is full."""

    def filled(self) -> int:
        """How many items can be taken now."""

    def take(self, borrow: bool) -> Tree:
        """The next item; borrowed ones need not be copied."""

    def release(self) -> None:
        """The oldest request that was taken is answered: it need not be kept any longer."""

    def rewind(self, count: int) -> None:
        """Offer the last taken requests again, for a receiver that crashed before it had answered them."""

    @property
    def sent(self) -> int: ...

    @property
    def taken(self) -> int: ...


class Cell(Protocol):
    """The newest value of one publisher, as one reader sees it. Its values are numbered from 1; 0 is none."""

    @property
    def number(self) -> int: ...

    def newest(self, known: int) -> Newest:
        """The newest value; without its content where its number is ``known``."""


class Group(Protocol):
    """What the members of a collective offer, round by round."""

    def offer(self, member: int, turn: int, value: Tree, weight: float) -> None: ...

    def complete(self, turn: int) -> bool: ...

    def read(self, turn: int) -> list[tuple[Tree, float]]:
        """What all members offered, in their order."""


class Storage(Protocol):
    """All edges of a formation, or those of one role."""

    def lane(self, edge: str, source: int, target: int) -> Lane: ...

    def publish(self, edge: str, source: int, value: Tree | Promise, version: int) -> None: ...

    def cell(self, edge: str, source: int, reader: RoleId) -> Cell: ...

    def group(self, edge: str) -> Group: ...


class Promise:
    """A value that is computed when it is first read, once."""

    def __init__(self, compute: Callable[[], Tree]) -> None:
        self._compute: Callable[[], Tree] | None = compute
        self._value: Tree = None

    def resolve(self) -> Tree:
        if self._compute is not None:
            self._value, self._compute = self._compute(), None
        return self._value


def resolved(value: Tree | Promise) -> Tree:
    return value.resolve() if isinstance(value, Promise) else value


@dataclass(frozen=True)
class Part:
    """What lies together: of a queue all for one receiver, of a broadcast all of one publisher, a whole collective."""

    edge: Edge
    index: int  # of the one receiver or publisher
    senders: list[RoleId]
    receivers: list[RoleId]
    answered: bool  # its items are requests

    @property
    def name(self) -> str:
        return f"{self.edge.name}/{self.index}"


def parts_of(formation: Formation, names: Container[str] | None = None) -> tuple[list[Part], list[Part], list[Part]]:
    """The parts of its queues, of its broadcasts, and of its collectives; all, or those of these names."""
    found: dict[str, list[Part]] = {"queue": [], "broadcast": [], "collective": []}
    answered = {edge.answers for edge in formation.edges}
    for edge in formation.edges:
        sources = _roles(formation, edge.source)
        if edge.kind == "queue":
            targets = _roles(formation, edge.target)
            ends = [([sources[i] for i in formation.sources(edge, target.index)], [target]) for target in targets]
        elif edge.kind == "broadcast":
            readers = readers_of(formation, edge)
            ends = [([source], readers) for source in sources]
        else:
            ends = [(sources, sources)]
        parts = (Part(edge, index, *roles, edge.name in answered) for index, roles in enumerate(ends))
        found[edge.kind] += [part for part in parts if names is None or part.name in names]
    return found["queue"], found["broadcast"], found["collective"]


def _roles(formation: Formation, kind: str) -> list[RoleId]:
    return [RoleId(kind, index) for index in range(formation.count(kind))]


def readers_of(formation: Formation, edge: Edge) -> list[RoleId]:
    """Everyone who may read a broadcast."""
    return [role for kind in (edge.target, *edge.also) for role in _roles(formation, kind)]


def publisher_of(formation: Formation, reader: RoleId, effect: Latest) -> int:
    """Whose value ``reader`` reads from a broadcast."""
    if effect.sender is not None:
        return effect.sender
    edge = formation.edge(effect.edge)
    return formation.sources(edge, reader.index)[0] if reader.kind == edge.target else 0
