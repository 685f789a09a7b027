"""Formations: which roles, how many, and what flows between them. Pure data."""

from starling.formations.base import Edge, Formation, RoleId, Roles
from starling.formations.catalogue import FORMATIONS, Counts, form, get_formation, settle

__all__ = ["FORMATIONS", "Counts", "Edge", "Formation", "RoleId", "Roles", "form", "get_formation", "settle"]
