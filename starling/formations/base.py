"""What a formation is: roles with counts and code, and edges between them with what they carry. Pure data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from starling.core.errors import UnknownNameError
from starling.core.trees import Tree

__all__ = ["Edge", "Formation", "RoleId", "Roles", "Start"]


@dataclass(frozen=True, order=True)
class RoleId:
    """One role of a formation."""

    kind: str  # actor, learner, worker, buffer, server, inference, evaluator; with its group: blue.actor
    index: int

    def __str__(self) -> str:
        return f"{self.kind}-{self.index}"


@dataclass(frozen=True)
class Start:
    """How a role begins: anew, or again after it crashed."""

    incarnation: int = 0  # how often it was started before
    restore: bool = False  # whether to go on from its last checkpoint
    sent: int = 0  # items that it put on its queues before
    unanswered: tuple[int, ...] = ()  # how many of its requests each server still has to answer
    state: Tree = None  # its last checkpoint, where the executor keeps it itself


@dataclass(frozen=True)
class Roles:
    """``count`` roles of one kind.

    ``make`` is the ``module:function`` that makes the code of one, ``make(context, role, start)``; it is imported in
    the role's own process alone. ``reserves`` are those of functions that say what each takes, ``reserve(context)``:
    bytes of memory, by purpose. Roles of one sort that belong apart, such as two populations of actors, are of kinds
    with a group in front: ``blue.actor``, ``red.actor``.

    ``learns`` and ``acts`` name the devices of its networks, as settings do: by its kind, or ``actor`` for the acting
    of a role that learns as well; empty where it has no such network.
    """

    kind: str
    count: int
    make: str = ""
    learns: str = ""
    acts: str = ""
    reserves: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[RoleId]:
        return (RoleId(self.kind, index) for index in range(self.count))

    @property
    def sort(self) -> str:
        """The kind without its group."""
        return self.kind.rpartition(".")[2]


@dataclass(frozen=True)
class Edge:
    """What flows from the roles of one kind to those of another.

    A ``queue`` holds up to ``depth`` items between each pair, in order. A ``broadcast`` holds the newest value of each
    source. A ``collective`` joins all roles of one kind. ``pinned`` edges pair source i with one target, i modulo
    their number (or target i with one source, where there are more targets); others pair all with all.

    ``message`` is the ``module:function`` that makes a blank message of the run, ``message(context)``: all have its
    layout. It gives a list where sources of a broadcast, or targets of a queue, differ.
    """

    name: str
    kind: Literal["queue", "broadcast", "collective"]
    source: str
    target: str
    depth: int = 1
    pinned: bool = False
    also: tuple[str, ...] = ()  # further kinds that read a broadcast
    answers: str = ""  # the edge whose items this one's answer, one for one
    counted: bool = False  # whether roles number the items that they put here
    loans: int = 0  # items taken from a queue that may still be read; 0: as many as there are senders
    message: str = ""


@dataclass(frozen=True)
class Formation:
    """Roles and edges; the run is over when every role of the kind ``ends`` is done."""

    name: str
    roles: tuple[Roles, ...]
    edges: tuple[Edge, ...]
    ends: str
    lockstep: bool = False  # nobody runs ahead: a lost learner takes the others back with it
    prioritizes: bool = False  # actors say of new experience how much it has to teach
    fresh: bool = False  # learners take experience of their newest weights alone
    fused: bool = False  # its one role acts and learns, and can be put back exactly

    def __iter__(self) -> Iterator[RoleId]:
        return (role for roles in self.roles for role in roles)

    def count(self, kind: str) -> int:
        """How many roles of this kind there are."""
        return self._by_kind[kind].count if kind in self._by_kind else 0

    @property
    def computing(self) -> list[str]:
        """The names by which its roles are given devices."""
        return sorted({name for roles in self.roles for name in (roles.learns, roles.acts)} - {""})

    def of_kind(self, kind: str) -> Roles:
        return self._by_kind[kind]

    def joined(self, kind: str) -> bool:
        """Whether the roles of this kind take every step together."""
        return any(edge.kind == "collective" and edge.source == kind for edge in self.edges)

    def restarts_all(self, kind: str) -> bool:
        """Whether the crash of a role of this kind takes all others back to the last checkpoint with it."""
        return self.lockstep or self.joined(kind)

    @cached_property
    def _by_kind(self) -> dict[str, Roles]:
        return {roles.kind: roles for roles in self.roles}

    @cached_property
    def _by_name(self) -> dict[str, Edge]:
        return {edge.name: edge for edge in self.edges}

    def edge(self, name: str) -> Edge:
        if name not in self._by_name:
            raise UnknownNameError("edge", name, self._by_name, f"formation {self.name}")
        return self._by_name[name]

    def targets(self, edge: Edge, source: int) -> list[int]:
        """The indices of the roles that source ``source`` of the edge sends to."""
        return [target for target in range(self.count(edge.target)) if self._paired(edge, source, target)]

    def sources(self, edge: Edge, target: int) -> list[int]:
        """The indices of the roles that target ``target`` of the edge receives from."""
        return [source for source in range(self.count(edge.source)) if self._paired(edge, source, target)]

    def lanes(self, edge: Edge) -> list[tuple[int, int]]:
        """Every pair (source, target) of the edge."""
        return [(source, target) for source in range(self.count(edge.source)) for target in self.targets(edge, source)]

    def _paired(self, edge: Edge, source: int, target: int) -> bool:
        if not edge.pinned:
            return True
        sources, targets = self.count(edge.source), self.count(edge.target)
        return source % targets == target if sources >= targets else target % sources == source
