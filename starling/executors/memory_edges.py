"""Edges in the memory of one process: queues, broadcasts and collectives, without waiting.

``attempt`` carries an effect out if it can be carried out now, and says WAIT otherwise.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import numpy as np

from starling.core.effects import AllReduce, Effect, Latest, Message, Newest, Publish, Put, Take, TakeMany
from starling.core.errors import ConfigError
from starling.core.trees import Tree, map_leaves
from starling.formations import Edge, Formation, RoleId

__all__ = ["WAIT", "Mailroom", "mean_of", "receiver_of", "sender_of"]

WAIT: Final = object()


class Mailroom:
    """All edges of a formation."""

    def __init__(self, formation: Formation) -> None:
        self.formation = formation
        self.edges: dict[str, Edge] = {edge.name: edge for edge in formation.edges}
        self.lanes: dict[tuple[str, int, int], deque[Tree]] = {}
        self.cells: dict[tuple[str, int], Newest] = {}
        self._rounds: dict[tuple[str, int], int] = {}  # how many collectives a member has taken part in
        self._offers: dict[tuple[str, int], dict[int, Tree]] = {}  # (edge, round) -> offers by member
        self.done: set[RoleId] = set()  # roles that have come to their end: they hold nobody up any more
        self._last: dict[RoleId, int] = {}  # the lane a role took from last, for fairness
        for edge in formation.edges:
            if edge.kind == "queue":
                self.lanes |= {(edge.name, source, target): deque() for source, target in formation.lanes(edge)}

    def attempt(self, role: RoleId, effect: Effect) -> Any:
        """The effect's result, or WAIT."""
        if isinstance(effect, Put):
            return self.put(role, effect)
        if isinstance(effect, Take):
            return self.take(role, effect)
        if isinstance(effect, TakeMany):
            return self.take_many(role, effect)
        if isinstance(effect, Latest):
            return self.latest(role, effect)
        if isinstance(effect, Publish):
            number = self.published(effect.edge, role.index) + 1
            self.cells[effect.edge, role.index] = Newest(effect.value, effect.version, number)
            return None
        if isinstance(effect, AllReduce):
            return self.reduce(role, effect)
        raise TypeError(f"{effect!r:.80} is not for the edges")

    def put(self, role: RoleId, effect: Put) -> Any:
        edge = self.edges[effect.edge]
        target = receiver_of(self.formation, edge, role.index, effect.to)
        lane = self.lanes[edge.name, role.index, target]
        if len(lane) >= edge.depth:
            return None if RoleId(edge.target, target) in self.done else WAIT
        lane.append(effect.item)
        return None

    def filled(self, role: RoleId, effect: Take) -> list[tuple[str, int]]:
        """The (edge, sender) pairs that have something for the role."""
        return [
            (name, source)
            for name in effect.edges
            for source in self.formation.sources(self.edges[name], role.index)
            if (effect.sender is None or source == effect.sender) and self.lanes[name, source, role.index]
        ]

    def take(self, role: RoleId, effect: Take) -> Any:
        found = self.filled(role, effect)
        if not found:
            return WAIT
        turn = self._last[role] = self._last.get(role, -1) + 1
        return self.take_from(role, *found[turn % len(found)])

    def take_from(self, role: RoleId, edge: str, sender: int) -> Message:
        return Message(edge, sender, self.lanes[edge, sender, role.index].popleft())

    def take_many(self, role: RoleId, effect: TakeMany) -> Any:
        found = self.filled(role, Take((effect.edge,)))[: effect.most]
        return [self.take_from(role, *each) for each in found] if found else WAIT

    def published(self, edge: str, sender: int) -> int:
        return self.cells[edge, sender].number if (edge, sender) in self.cells else 0

    def latest(self, role: RoleId, effect: Latest) -> Any:
        sender = sender_of(self.formation, self.edges[effect.edge], role, effect.sender)
        wanted = 1 if RoleId(self.edges[effect.edge].source, sender) in self.done else effect.after
        return self.cells[effect.edge, sender] if self.published(effect.edge, sender) >= wanted else WAIT

    def reduce(self, role: RoleId, effect: AllReduce) -> Any:
        turn = self._rounds.get((effect.edge, role.index), 0)
        offers = self._offers.setdefault((effect.edge, turn), {})
        offers[role.index] = effect.value
        members = self.formation.count(role.kind)
        if len(offers) < members:
            return WAIT
        self._rounds[effect.edge, role.index] = turn + 1
        if all(self._rounds.get((effect.edge, i), 0) > turn for i in range(members)):
            del self._offers[effect.edge, turn]
        return mean_of([offers[i] for i in range(members)])

    def forget(self, role: RoleId) -> None:
        """Take back what a lost role offered to a group."""
        for offers in self._offers.values():
            offers.pop(role.index, None)


def receiver_of(formation: Formation, edge: Edge, source: int, to: int | None) -> int:
    """Who gets what ``source`` puts on the edge."""
    targets = formation.targets(edge, source)
    if to is None and len(targets) == 1:
        return targets[0]
    if to not in targets:
        raise ConfigError(f"{edge.source}-{source} puts on {edge.name!r} to {to}; it leads to {targets}.")
    return to


def sender_of(formation: Formation, edge: Edge, role: RoleId, sender: int | None) -> int:
    """Whose value ``role`` reads from a broadcast."""
    if sender is not None:
        return sender
    return formation.sources(edge, role.index)[0] if role.kind == edge.target else 0


def mean_of(values: list[Tree]) -> Tree:
    """The mean, leaf by leaf, always in the same order."""

    def mean(*leaves: Any) -> Any:
        total = np.asarray(leaves[0])
        for leaf in leaves[1:]:
            total = total + leaf
        return total / np.asarray(len(leaves), total.dtype)

    return map_leaves(mean, values[0], *values[1:])
