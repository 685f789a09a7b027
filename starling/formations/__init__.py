"""Formations: which roles, how many, and what flows between them. Pure data."""

from starling.formations.base import Edge, Formation, RoleId, Roles, Start
from starling.formations.catalogue import FORMATIONS, Counts, form, resolved_counts
from starling.formations.parts import Part, parts_of, publisher_of, readers_of
from starling.formations.placement import Placement

__all__ = [
    "FORMATIONS",
    "Counts",
    "Edge",
    "Formation",
    "Part",
    "Placement",
    "RoleId",
    "Roles",
    "Start",
    "form",
    "parts_of",
    "publisher_of",
    "readers_of",
    "resolved_counts",
]
