"""What a formation is: roles with counts, and edges between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from starling.core.errors import UnknownNameError

__all__ = ["Edge", "Formation", "RoleId", "Roles"]


@dataclass(frozen=True, order=True)
class RoleId:
    """One role of a formation."""

    kind: str  # actor, learner, worker, buffer, server, inference, evaluator
    index: int

    def __str__(self) -> str:
        return f"{self.kind}-{self.index}"


@dataclass(frozen=True)
class Roles:
    """``count`` roles of one kind."""

    kind: str
    count: int

    def __iter__(self) -> Iterator[RoleId]:
        return (RoleId(self.kind, index) for index in range(self.count))


@dataclass(frozen=True)
class Edge:
    """What flows from the roles of one kind to those of another.

    A ``queue`` holds up to ``depth`` items between each pair, in order. A ``broadcast`` holds the newest value of each
    source. A ``collective`` joins all roles of one kind. ``pinned`` edges pair source i with one target, i modulo
    their number (or target i with one source, where there are more targets); others pair all with all.
    """

    name: str
    kind: Literal["queue", "broadcast", "collective"]
    source: str
    target: str
    depth: int = 1
    pinned: bool = False
    also: tuple[str, ...] = ()  # further kinds that read a broadcast
    answers: str = ""  # the edge whose items this one's answer, one for one


@dataclass(frozen=True)
class Formation:
    """Roles and edges; the run is over when every role of the kind ``ends`` is done."""

    name: str
    roles: tuple[Roles, ...]
    edges: tuple[Edge, ...]
    ends: str
    lockstep: bool = False  # nobody runs ahead: a lost learner takes the others back with it

    def __iter__(self) -> Iterator[RoleId]:
        return (role for roles in self.roles for role in roles)

    def count(self, kind: str) -> int:
        """How many roles of this kind there are."""
        return self._counts.get(kind, 0)

    def joined(self, kind: str) -> bool:
        """Whether the roles of this kind take every step together."""
        return any(edge.kind == "collective" and edge.source == kind for edge in self.edges)

    @cached_property
    def _counts(self) -> dict[str, int]:
        return {roles.kind: roles.count for roles in self.roles}

    def edge(self, name: str) -> Edge:
        for edge in self.edges:
            if edge.name == name:
                return edge
        raise UnknownNameError("edge", name, [edge.name for edge in self.edges], f"formation {self.name}")

    def targets(self, edge: Edge, source: int) -> list[int]:
        """The indices of the roles that source ``source`` of the edge sends to."""
        return [target for target in range(self.count(edge.target)) if self._paired(edge, source, target)]

    def sources(self, edge: Edge, target: int) -> list[int]:
        """The indices of the roles that target ``target`` of the edge hears."""
        return [source for source in range(self.count(edge.source)) if self._paired(edge, source, target)]

    def lanes(self, edge: Edge) -> list[tuple[int, int]]:
        """Every pair (source, target) of the edge."""
        return [(source, target) for source in range(self.count(edge.source)) for target in self.targets(edge, source)]

    def _paired(self, edge: Edge, source: int, target: int) -> bool:
        if not edge.pinned:
            return True
        sources, targets = self.count(edge.source), self.count(edge.target)
        return source % targets == target if sources >= targets else target % sources == source
