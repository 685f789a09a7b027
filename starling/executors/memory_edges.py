"""Edges in the memory of one process: items are handed over as they are.

``carry`` decides when something arrives: at once, or later and perhaps twice, as the simulator has it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

from starling.core.effects import Newest
from starling.core.lanes import Arrive, MemoryCell, MemoryGroup, MemoryLane
from starling.core.trees import Tree
from starling.executors.edges import Promise
from starling.formations import Edge, Formation, RoleId, parts_of

__all__ = ["MemoryEdges"]

Carry = Callable[[Edge, int, RoleId, Arrive], None]  # over the edge, from source to receiver


def _at_once(edge: Edge, source: int, receiver: RoleId, arrive: Arrive) -> None:
    arrive()


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
