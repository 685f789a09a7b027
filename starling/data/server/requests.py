"""The first message of a connection: what a client asks for, every field of it checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starling.core.errors import DataError, UnknownNameError
from starling.core.segments import Field
from starling.data.saving.replay import largest_batch
from starling.data.server.protocol import describe, sampler_fields, writer_fields
from starling.data.tables.table import Table
from starling.data.untrusted import Untrusted

__all__ = ["Question", "Request", "SamplerRequest", "WriterRequest", "parse_request"]

QUESTIONS = ("checkpoint", "stats")
ROLES = (*QUESTIONS, "sampler", "writer")
LARGEST_RING = 65_536  # items; for a table that holds more, as many as that
DEEPEST_RING = 1_024  # batches
REMEDY = "Ask for less, or for what this server has; is the client of another version?"


@dataclass(frozen=True)
class Question:
    """Something that is done once."""

    name: str


@dataclass(frozen=True)
class WriterRequest:
    """A ring of ``slots`` items to some tables."""

    tables: tuple[str, ...]
    layout: list[list[Any]]
    actor: int
    slots: int

    def fields(self) -> list[Field]:
        return writer_fields(self.layout, self.slots)


@dataclass(frozen=True)
class SamplerRequest:
    """A ring of ``depth`` batches of a table, and one of priority updates."""

    table: str
    layout: list[list[Any]]
    batch: int
    depth: int
    updates: int

    def fields(self) -> list[Field]:
        return sampler_fields(self.layout, self.batch, self.depth, self.updates)


Request = Question | WriterRequest | SamplerRequest


def parse_request(message: dict[str, Any], tables: Mapping[str, Table]) -> Request:
    """What a message asks for; DataError or UnknownNameError where it cannot be had."""
    given = Untrusted(message, "a client's request", "", REMEDY, DataError)
    role = given.text("role")
    if role not in ROLES:
        raise UnknownNameError("role", role, ROLES)
    if role in QUESTIONS:
        given.only("role")
        return Question(role)
    names = given.texts("tables")
    given.check(0 < len(names) == len(set(names)), "tables", "it has one name at least, and each once")
    for name in names:
        if name not in tables:
            raise UnknownNameError("table", name, tables)
    layout = _layout_of(given, [tables[name] for name in names])
    if role == "writer":
        given.only("role", "tables", "layout", "actor", "slots")
        most = max(LARGEST_RING, min(tables[name].capacity for name in names))
        return WriterRequest(tuple(names), layout, given.integer("actor"), given.integer("slots", 1, most))
    given.only("role", "tables", "layout", "batch", "depth", "updates")
    given.check(len(names) == 1, "tables", "a sampler draws from one table")
    most = largest_batch(tables[names[0]])
    batch, depth = given.integer("batch", 1, most), given.integer("depth", 1, DEEPEST_RING)
    return SamplerRequest(names[0], layout, batch, depth, given.integer("updates", 1, 16 * most))


def _layout_of(given: Untrusted, tables: list[Table]) -> list[list[Any]]:
    """The layout of the items, which is the tables' own: that of the message is equal, but may be of other types."""
    layout = describe(tables[0].signature)
    for table in tables:
        theirs, ours = given.get("layout"), describe(table.signature)
        if theirs != ours or ours != layout:
            raise DataError(f"the client's items are {theirs!r:.500}, those of the table {table.name!r} {ours!r:.500}.")
    return layout
