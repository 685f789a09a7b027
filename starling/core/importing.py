"""Where things can be imported from, ``module:name``: what travels to another process in place of the thing itself."""

from __future__ import annotations

import importlib
from typing import Any

from starling.core.errors import ConfigError

__all__ = ["import_path", "imported"]


def imported(path: str) -> Any:
    """What ``module:name`` names; it is imported now."""
    module, _, name = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def import_path(value: Any) -> str:
    """Where another process finds ``value``, a class or a function."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    path = f"{module}:{name}"
    if module and name and module != "__main__" and "<" not in name:
        try:
            if imported(path) is value:
                return path
        except (ImportError, AttributeError):
            pass
    raise ConfigError(
        f"{name or repr(value)[:60]} (in {module or 'no module'}) cannot be made in another process, which imports it: "
        "give a class or function at the top level of a module that can be imported; register what is neither by its "
        "'module:name'."
    )
