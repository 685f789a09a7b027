"""Edges in the memory of one process: items are handed over as they are.

``carry`` decides when something arrives: at once, or later and perhaps twice, as the simulator has it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from starling.core.effects import Newest
from starling.core.trees import Tree
from starling.executors.edges import Promise, readers_of, resolved
from starling.formations import Edge, Formation, RoleId

__all__ = ["MemoryCell", "MemoryEdges", "MemoryGroup", "MemoryLane"]

Arrive = Callable[[], None]
Carry = Callable[[Edge, int, RoleId, Arrive], None]  # over the edge, from source to receiver


def _at_once(edge: Edge, source: int, receiver: RoleId, arrive: Arrive) -> None:
    arrive()


class MemoryLane:
    """Sent in order, perhaps out of order on the way, taken in order."""

    def __init__(self, depth: int, keeps: bool, carry: Callable[[Arrive], None]) -> None:
        """``keeps`` items that were taken until they are released."""
        self.depth, self.sent, self.taken, self.doubled = depth, 0, 0, 0
        self._keeps, self._carry, self._released = keeps, carry, 0
        self._arrived: dict[int, Tree] = {}  # by number

    def put(self, item: Tree) -> bool:
        if self.sent - self.taken >= self.depth:
            return False
        self.sent += 1
        self._carry(partial(self.arrive, self.sent - 1, item))
        return True

    def arrive(self, number: int, item: Tree) -> None:
        if number < self.taken or number in self._arrived:
            self.doubled += 1
        else:
            self._arrived[number] = item

    def filled(self) -> int:
        number = self.taken
        while number in self._arrived:
            number += 1
        return number - self.taken

    def take(self, borrow: bool) -> Tree:
        item = self._arrived[self.taken] if self._keeps else self._arrived.pop(self.taken)
        self.taken += 1
        return item

    def release(self) -> None:
        self._arrived.pop(self._released, None)
        self._released += 1

    def rewind(self, count: int) -> None:
        self.taken -= count


class MemoryCell:
    """The newest value that has arrived at each reader."""

    def __init__(self, readers: list[RoleId], carry: Callable[[RoleId, Arrive], None]) -> None:
        self._readers, self._carry, self._published = readers, carry, 0
        self._newest: dict[RoleId, Newest] = {}

    def publish(self, value: Tree | Promise, version: int) -> None:
        self._published += 1
        newest = Newest(value, version, self._published)
        for reader in self._readers:
            self._carry(reader, partial(self._arrive, reader, newest))

    def _arrive(self, reader: RoleId, newest: Newest) -> None:
        if newest.number > self.number(reader):
            self._newest[reader] = newest

    def number(self, reader: RoleId) -> int:
        return self._newest[reader].number if reader in self._newest else 0

    def newest(self, reader: RoleId, known: int) -> Newest:
        value, version, number = self._newest[reader]
        return Newest(None if number == known else resolved(value), version, number)


class MemoryGroup:
    """The offers of two rounds: nobody begins a third before all have read the first."""

    def __init__(self, members: int) -> None:
        self._rounds = [0] * members
        self._offers: list[list[tuple[Tree, float]]] = [[(None, 0.0)] * members for _ in range(2)]

    def offer(self, member: int, turn: int, value: Tree, weight: float) -> None:
        self._offers[turn % 2][member] = (value, weight)
        self._rounds[member] = turn + 1

    def complete(self, turn: int) -> bool:
        return all(reached > turn for reached in self._rounds)

    def read(self, turn: int) -> list[tuple[Tree, float]]:
        return self._offers[turn % 2]


class MemoryEdges:
    """All edges of a formation."""

    def __init__(self, formation: Formation, carry: Carry = _at_once) -> None:
        self.lanes: dict[tuple[str, int, int], MemoryLane] = {}
        self._cells: dict[tuple[str, int], MemoryCell] = {}
        self._groups: dict[str, MemoryGroup] = {}
        answered = {edge.answers for edge in formation.edges}
        for edge in formation.edges:
            if edge.kind == "collective":
                self._groups[edge.name] = MemoryGroup(formation.count(edge.source))
            elif edge.kind == "broadcast":
                readers = readers_of(formation, edge)
                for source in range(formation.count(edge.source)):
                    self._cells[edge.name, source] = MemoryCell(readers, partial(carry, edge, source))
            else:
                for source, target in formation.lanes(edge):
                    way = partial(carry, edge, source, RoleId(edge.target, target))
                    self.lanes[edge.name, source, target] = MemoryLane(edge.depth, edge.name in answered, way)

    def lane(self, edge: str, source: int, target: int) -> MemoryLane:
        return self.lanes[edge, source, target]

    def cell(self, edge: str, source: int) -> MemoryCell:
        return self._cells[edge, source]

    def group(self, edge: str) -> MemoryGroup:
        return self._groups[edge]
