"""Suggestions for the misspelt name of an environment."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["nearest"]


def nearest(name: str, known: Iterable[str], count: int = 8) -> list[str]:
    """The known names most like ``name``: registries hold hundreds, too many to print."""
    candidates = list(known)
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    near = difflib.get_close_matches(name.lower(), by_lower, n=count, cutoff=0.4)
    return [by_lower[key] for key in near] or candidates[:count]
