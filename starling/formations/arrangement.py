"""How a formation is laid out on a page, whatever draws it: kinds of roles side by side, edges between them."""

from __future__ import annotations

from dataclasses import dataclass

from starling.formations.base import Edge, Formation, Roles

__all__ = ["Arrangement", "Arrow", "arrange"]

# From left to right: neighbours in this order have the most to say to each other.
ORDER = ("inference", "actor", "worker", "buffer", "learner", "server", "evaluator")


@dataclass(frozen=True)
class Arrow:
    """An edge between two columns; one that leads to several kinds is several arrows."""

    edge: Edge
    source: int
    target: int
    pairing: str  # who is paired with whom, in words; empty where there is no choice

    @property
    def kind(self) -> str:
        """The edge's kind and depth, in words."""
        return f"queue of {self.edge.depth}" if self.edge.kind == "queue" else self.edge.kind

    @property
    def span(self) -> int:
        return abs(self.source - self.target)


@dataclass(frozen=True)
class Arrangement:
    """Kinds of roles from left to right, and the arrows between neighbours, between others, and within a kind."""

    formation: Formation
    columns: tuple[Roles, ...]
    between: tuple[tuple[Arrow, ...], ...]  # column i and i + 1
    far: tuple[Arrow, ...]  # the shortest first
    within: tuple[tuple[Arrow, ...], ...]  # column i and itself

    def ends(self, column: int) -> bool:
        """Whether the run is over when these roles are done."""
        return self.columns[column].kind == self.formation.ends


def arrange(formation: Formation) -> Arrangement:
    """Places for the roles and edges of a formation."""
    columns = tuple(sorted(formation.roles, key=lambda roles: _rank(roles.kind)))
    place = {roles.kind: i for i, roles in enumerate(columns)}
    arrows = [
        Arrow(edge, place[edge.source], place[target], _pairing(formation, edge, target))
        for edge in formation.edges
        for target in (edge.target, *edge.also)
    ]
    return Arrangement(
        formation,
        columns,
        tuple(
            tuple(arrow for arrow in arrows if {arrow.source, arrow.target} == {i, i + 1})
            for i in range(len(columns) - 1)
        ),
        tuple(sorted((arrow for arrow in arrows if arrow.span > 1), key=lambda arrow: arrow.span)),
        tuple(tuple(arrow for arrow in arrows if arrow.source == arrow.target == i) for i in range(len(columns))),
    )


def _rank(kind: str) -> int:
    return ORDER.index(kind) if kind in ORDER else len(ORDER)


def _pairing(formation: Formation, edge: Edge, target: str) -> str:
    """Which sources are paired with which targets."""
    sources, targets = formation.count(edge.source), formation.count(target)
    if edge.kind == "collective":
        return f"of all {sources}"
    if edge.kind == "broadcast":
        of_one = edge.pinned and target == edge.target and sources > 1
        return f"from one {edge.source} each" if of_one else ""
    if sources == 1 or targets == 1:
        return ""
    if not edge.pinned:
        return f"each to every {target}"
    return f"each to one {target}" if sources >= targets else f"each to {target}s of its own"
