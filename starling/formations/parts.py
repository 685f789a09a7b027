"""What of an edge lies together, and which roles share it."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from starling.core.effects import Latest
from starling.formations.base import Edge, Formation, RoleId

__all__ = ["Part", "parts_of", "publisher_of", "readers_of"]


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


def readers_of(formation: Formation, edge: Edge) -> list[RoleId]:
    """Everyone who may read a broadcast."""
    return [role for kind in (edge.target, *edge.also) for role in _roles(formation, kind)]


def publisher_of(formation: Formation, reader: RoleId, effect: Latest) -> int:
    """Whose value ``reader`` reads from a broadcast."""
    if effect.sender is not None:
        return effect.sender
    edge = formation.edge(effect.edge)
    return formation.sources(edge, reader.index)[0] if reader.kind == edge.target else 0


def _roles(formation: Formation, kind: str) -> list[RoleId]:
    return [RoleId(kind, index) for index in range(formation.count(kind))]
