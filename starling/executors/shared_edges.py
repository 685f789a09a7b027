"""Edges in shared memory, laid out from a blank message of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starling.core.lockfree import Pool, SharedCell, SharedGroup, SharedLane
from starling.core.trees import Tree
from starling.executors.edges import Promise
from starling.formations import Formation, Part, RoleId, parts_of

__all__ = ["SharedEdges", "sizes_of"]


class SharedEdges:
    """All edges of a formation, or those of one role, where it is given their descriptors."""

    def __init__(
        self, formation: Formation, blanks: Mapping[str, Tree], descriptors: Mapping[str, int] | None = None
    ) -> None:
        queues, broadcasts, collectives = parts_of(formation, descriptors)
        self._formation, self._layout = formation, [*queues, *broadcasts, *collectives]
        given: Mapping[str, int] = descriptors or {}

        self._pools = {
            part.name: Pool(
                part.edge.name,
                _blank(part, blanks),
                senders=[sender.index for sender in part.senders],
                depth=part.edge.depth,
                loans=part.edge.loans,
                keeps=part.answered,
                descriptor=given.get(part.name),
            )
            for part in queues
        }
        self._cells = {
            part.name: SharedCell(part.edge.name, _blank(part, blanks), given.get(part.name)) for part in broadcasts
        }
        self._groups = {
            part.name: SharedGroup(part.edge.name, _blank(part, blanks), len(part.senders), given.get(part.name))
            for part in collectives
        }
        self._parts: dict[str, Pool | SharedCell | SharedGroup] = {**self._pools, **self._cells, **self._groups}

    def lane(self, edge: str, source: int, target: int) -> SharedLane:
        return self._pools[f"{edge}/{target}"].lanes[source]

    def publish(self, edge: str, source: int, value: Tree | Promise, version: int) -> None:
        self._cells[f"{edge}/{source}"].publish(value() if callable(value) else value, version)

    def cell(self, edge: str, source: int, reader: RoleId) -> SharedCell:
        return self._cells[f"{edge}/{source}"]

    def group(self, edge: str) -> SharedGroup:
        return self._groups[f"{edge}/0"]

    def descriptors(self, role: RoleId) -> dict[str, int]:
        """Of the parts that a role has anything to do with."""
        mine = [part.name for part in self._layout if role in part.senders or role in part.receivers]
        return {name: self._parts[name].segment.descriptor for name in mine}

    def status(self) -> list[dict[str, Any]]:
        """What every edge holds."""
        found: list[dict[str, Any]] = []
        for edge in self._formation.edges:
            about = {"edge": edge.name, "kind": edge.kind}
            if edge.kind == "queue":
                for source, target in self._formation.lanes(edge):
                    lane = self.lane(edge.name, source, target)
                    ends = {"from": f"{edge.source}-{source}", "to": f"{edge.target}-{target}"}
                    found.append({**about, **ends, "sent": lane.sent, "held": lane.filled(), "depth": lane.depth})
            elif edge.kind == "broadcast":
                for source in range(self._formation.count(edge.source)):
                    published = {"to": edge.target, "published": self._cells[f"{edge.name}/{source}"].number}
                    found.append({**about, "from": f"{edge.source}-{source}", **published})
            else:
                found.append({**about, "from": edge.source})
        return found

    def reset(self) -> None:
        """Empty every edge, while no role runs."""
        for part in self._parts.values():
            part.reset()

    def close(self) -> None:
        for part in self._parts.values():
            part.segment.close()


def _blank(part: Part, blanks: Mapping[str, Tree]) -> Tree:
    return blanks.get(part.name, blanks.get(part.edge.name))


def sizes_of(formation: Formation, blanks: Mapping[str, Tree]) -> dict[str, int]:
    """Bytes of shared memory that each edge takes."""
    queues, broadcasts, collectives = parts_of(formation)
    found = dict.fromkeys((edge.name for edge in formation.edges), 0)
    for part in queues:
        edge, blank = part.edge, _blank(part, blanks)
        found[edge.name] += Pool.size(blank, len(part.senders), edge.depth, edge.loans, part.answered)
    for part in broadcasts:
        found[part.edge.name] += SharedCell.size(_blank(part, blanks))
    for part in collectives:
        found[part.edge.name] += SharedGroup.size(_blank(part, blanks), len(part.senders))
    return found
