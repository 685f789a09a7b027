"""Edges in the memory of one process: items are handed over as they are.

``carry`` decides when something arrives: at once, or later and perhaps twice, as the simulator has it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

from starling.core.effects import Newest
from starling.core.trees import Tree
from starling.executors.storage import Promise, parts_of, resolved
from starling.formations import Edge, Formation, RoleId

__all__ = ["Arrive", "MemoryCell", "MemoryEdges", "MemoryGroup", "MemoryLane"]

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
    """The newest value that has arrived at one reader."""

    def __init__(self) -> None:
        self._newest = Newest(None, 0, 0)

    @property
    def number(self) -> int:
        return self._newest.number

    def arrive(self, newest: Newest) -> None:
        if newest.number > self.number:
            self._newest = newest

    def newest(self, known: int) -> Newest:
        value = None if self.number == known else resolved(self._newest.value)
        return self._newest._replace(value=value)


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
    """All edges of a formation. Queues that are ``unlimited`` hold any number of items, whatever their depth."""

    def __init__(self, formation: Formation, carry: Carry = _at_once, unlimited: bool = False) -> None:
        self._formation, self._carry = formation, carry
        self._published: dict[tuple[str, int], int] = {}
        queues, broadcasts, collectives = parts_of(formation)
        self.lanes = {
            (part.edge.name, sender.index, part.index): MemoryLane(
                depth=sys.maxsize if unlimited else part.edge.depth,
                keeps=part.answered,
                carry=partial(carry, part.edge, sender.index, part.receivers[0]),
            )
            for part in queues
            for sender in part.senders
        }
        self._cells = {
            (part.edge.name, part.index): {reader: MemoryCell() for reader in part.receivers} for part in broadcasts
        }
        self._groups = {part.edge.name: MemoryGroup(len(part.senders)) for part in collectives}

    def lane(self, edge: str, source: int, target: int) -> MemoryLane:
        return self.lanes[edge, source, target]

    def publish(self, edge: str, source: int, value: Tree | Promise, version: int) -> None:
        number = self._published[edge, source] = self._published.get((edge, source), 0) + 1
        newest = Newest(value, version, number)
        for reader, cell in self._cells[edge, source].items():
            self._carry(self._formation.edge(edge), source, reader, partial(cell.arrive, newest))

    def cell(self, edge: str, source: int, reader: RoleId) -> MemoryCell:
        return self._cells[edge, source].get(reader, MemoryCell())  # nothing arrives at one who is no reader

    def group(self, edge: str) -> MemoryGroup:
        return self._groups[edge]
