"""Names of environments: suggestions for a misspelt one, and where a constructor can be imported from."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterable
from typing import Any

from starling.core.errors import ConfigError

__all__ = ["import_path", "imported", "nearest"]


def nearest(name: str, known: Iterable[str], count: int = 8) -> list[str]:
    """The known names most like ``name``: registries hold hundreds, too many to print."""
    candidates = list(known)
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    near = difflib.get_close_matches(name.lower(), by_lower, n=count, cutoff=0.4)
    return [by_lower[key] for key in near] or candidates[:count]


def import_path(construct: Callable[..., Any]) -> str:
    """Where another process finds ``construct``: ``module:name``."""
    module, name = getattr(construct, "__module__", None), getattr(construct, "__qualname__", None)
    path = f"{module}:{name}"
    if module and name and module != "__main__" and "<" not in name:
        try:
            if imported(path) is construct:
                return path
        except (ImportError, AttributeError):
            pass
    raise ConfigError(
        f"{name or repr(construct)} (in {module or 'no module'}) cannot be made in another process, which looks it up: "
        "give an id, or a class or function at the top level of a module that can be imported."
    )


def imported(path: str) -> Callable[..., Any]:
    """The constructor at ``module:name``."""
    module, _, name = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found
