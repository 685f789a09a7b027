"""Formations: which roles, how many, and what flows between them. Pure data."""

from starling.formations.base import Edge, Formation, RoleId, Roles, Start, resolve
from starling.formations.catalogue import FORMATIONS, Counts, form, get_formation, settled

__all__ = [
    "FORMATIONS",
    "Counts",
    "Edge",
    "Formation",
    "RoleId",
    "Roles",
    "Start",
    "form",
    "get_formation",
    "resolve",
    "settled",
]
