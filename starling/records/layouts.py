"""What the JSON files of a run hold: checked where they are read, so that whoever uses them meets no surprise.

A layout is ``int``, ``float`` (finite), ``str`` or ``object``; a list of one layout; names with a layout each, and
there may be others; or any names with one layout, ``{...: layout}``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

__all__ = ["Exactly", "OrAbsent", "OrNull", "misfit"]

LARGEST = 2**63 - 1  # of whole numbers


@dataclass(frozen=True)
class OrNull:
    """What fits the layout, or null."""

    layout: Any


@dataclass(frozen=True)
class OrAbsent:
    """A name that may be absent."""

    layout: Any


@dataclass(frozen=True)
class Exactly:
    """Names of which no others may be there."""

    layout: dict[str, Any]


MANIFEST = {"algo": str, "env": str, "processors": OrAbsent(int), "settings": OrAbsent({...: object})}

SUMMARY = {
    "status": str,
    "env_steps": int,
    "seconds": float,
    "env_steps_per_second": float,
    "parameter_hash": OrNull(str),
}

_WAIT = {
    "effect": str,
    "edges": [str],
    "sender": OrNull(int),
    "receiver": OrNull(int),
    "wanted": OrNull(int),
    "seconds": OrNull(float),
    "reason": str,
}
_ROLE = {
    "role": str,
    "state": str,
    "waiting": OrNull(Exactly(_WAIT)),
    "for_seconds": float,
    "silent_seconds": OrNull(float),
    "busy_seconds": float,
    "waited_seconds": {...: float},
    "passed": {...: int},
    "steps": int,
    "restarts": int,
    "pid": int,
}
_EDGE = {
    "edge": str,
    "kind": str,
    "from": str,
    "to": OrAbsent(str),
    "sent": OrAbsent(int),
    "held": OrAbsent(int),
    "depth": OrAbsent(int),
    "published": OrAbsent(int),
}
STATUS = {"formation": str, "ends": str, "seconds": float, "time": float, "roles": [_ROLE], "edges": [_EDGE]}


def misfit(value: Any, layout: Any, where: str = "") -> str:
    """Where and how a value departs from its layout, in words; empty where it fits."""
    match layout:
        case OrNull(inner):
            return "" if value is None else misfit(value, inner, where)
        case Exactly(names):
            others = [name for name in value if name not in names] if isinstance(value, dict) else []
            return f"{where.removeprefix('.')}.{others[0]} is unknown" if others else misfit(value, names, where)
        case [inner] if isinstance(value, list):
            parts = [(f"{where}[{i}]", each, inner) for i, each in enumerate(value)]
        case dict() if isinstance(value, dict):
            parts = _named(value, layout, where)
        case type() if _is_a(value, layout):
            return ""
        case _:
            kind = layout.__name__ if isinstance(layout, type) else type(layout).__name__
            said = "is missing" if value is ... else f"is {value!r:.40}, no {kind}"
            return f"{where.removeprefix('.')} {said}"
    return next(filter(None, (misfit(part, inner, place) for place, part, inner in parts)), "")


def _named(value: dict[str, Any], layout: dict[Any, Any], where: str) -> list[tuple[str, Any, Any]]:
    """The parts that a layout names: place, value, layout."""
    if ... in layout:
        return [(f"{where}.{name}", each, layout[...]) for name, each in value.items()]
    parts = []
    for name, inner in layout.items():
        if isinstance(inner, OrAbsent):
            inner = inner.layout
            if name not in value:
                continue
        parts.append((f"{where}.{name}", value.get(name, ...), inner))
    return parts


def _is_a(value: Any, kind: type) -> bool:
    if kind is float and type(value) is float:
        return math.isfinite(value)
    if kind in (int, float):
        return type(value) is int and abs(value) <= LARGEST
    return kind is object or type(value) is kind
