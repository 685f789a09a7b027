"""Settings in YAML that anyone may have written: bounded, and of plain values alone.

A file of a few hundred bytes can stand for gigabytes where aliases repeat aliases, and nest more deeply than a stack
holds. What a document stands for is counted while it is composed, so a bomb is refused before anything is made of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from starling.core.errors import StarlingError

__all__ = ["parse_settings", "read_settings"]

MOST_BYTES = 1 << 20
MOST_NODES = 50_000  # values and names, each as often as aliases repeat it
DEEPEST = 50  # levels of lists and mappings
LARGEST = 2**63 - 1  # of whole numbers
LONGEST = 80  # characters of a whole number; binary digits of the largest one are 65

_STANDARD = "tag:yaml.org,2002:"
_KINDS = {_STANDARD + kind for kind in ("null", "bool", "int", "float", "str", "seq", "map", "merge")}


def read_settings(path: str | Path, error: type[StarlingError]) -> dict[str, Any]:
    """The mapping in a YAML (or JSON) file; ``error`` where there is none."""
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as reason:  # ValueError: no file can have this name
        raise error(f"cannot read {path}: {str(getattr(reason, 'strerror', reason)).lower()}.") from None
    return parse_settings(data, str(path), error)


def parse_settings(data: bytes, where: str, error: type[StarlingError]) -> dict[str, Any]:
    """The mapping in the bytes of the YAML file ``where``."""
    if len(data) > MOST_BYTES:
        raise error(f"{where} has more than {MOST_BYTES:,} bytes; settings are a few lines. Is it another file?")
    try:
        loaded = yaml.load(data, _BoundedLoader)
    except yaml.YAMLError as reason:
        raise error(f"{where} is not valid YAML: {_explained(reason)}.") from None
    if not isinstance(loaded, dict):
        raise error(f"{where} holds {type(loaded).__name__}; settings are a mapping of names to values.")
    return loaded


class _BoundedLoader(yaml.SafeLoader):
    """Counts what a document stands for, and refuses what no setting is."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._depth = self._nodes = 0
        self._sizes: dict[str, int] = {}  # of what has an anchor, once all of it is there

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()
        if self.check_event(yaml.AliasEvent):
            self._repeat(event)
            return super().compose_node(parent, index)
        before = self._nodes
        self._count(1, event)
        self._depth += 1
        if self._depth > DEEPEST:
            raise _refusal(event, f"it nests deeper than {DEEPEST} levels; flatten it")
        node: Any = super().compose_node(parent, index)
        self._depth -= 1
        if node.tag not in _KINDS:
            kind = node.tag.removeprefix(_STANDARD)
            raise _refusal(node, f"{_shown(node)} is read as a {kind}, which no setting is; write it in quotes")
        if event.anchor is not None:
            self._sizes[event.anchor] = self._nodes - before
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        long = node.tag == _STANDARD + "int" and len(node.value) > LONGEST
        try:
            value = None if long else super().construct_object(node, deep)
        except (ValueError, LookupError, OverflowError):
            raise _refusal(node, f"{_shown(node)} is no {node.tag.removeprefix(_STANDARD)}") from None
        if long or (type(value) is int and abs(value) > LARGEST):
            raise _refusal(node, f"{_shown(node)} lies beyond {LARGEST:,}, the largest of 64 bits")
        return value

    def _repeat(self, event: Any) -> None:
        """Count what an alias stands for; one that is undefined is refused when it is composed."""
        if event.anchor in self.anchors and event.anchor not in self._sizes:
            raise _refusal(event, f"the alias {event.anchor} repeats what it is part of")
        self._count(self._sizes.get(event.anchor, 0), event)

    def _count(self, nodes: int, event: Any) -> None:
        self._nodes += nodes
        if self._nodes > MOST_NODES:
            raise _refusal(event, f"it stands for more than {MOST_NODES:,} values, aliases written out; shorten it")


def _refusal(place: Any, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=place.start_mark)


def _shown(node: Any) -> str:
    """The text of a scalar, as far as a message can show it."""
    return repr(node.value[:40]) if isinstance(node.value, str) else f"the {node.id}"


def _explained(reason: yaml.YAMLError) -> str:
    """What is wrong, and in which line."""
    if isinstance(reason, yaml.MarkedYAMLError) and reason.problem_mark is not None:
        said = ", ".join(part for part in (reason.context, reason.problem) if part)
        return f"line {reason.problem_mark.line + 1}: {said}"
    return str(reason)
