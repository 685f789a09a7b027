"""What a run takes of memory, worked out from its spaces before anything of it is made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from starling.core.errors import ConfigError
from starling.core.importing import imported
from starling.core.memory import refuse_if_too_large
from starling.executors import EXECUTORS
from starling.executors.shared_edges import sizes_of
from starling.experiments.program import Program

__all__ = ["Reserved", "check_memory", "reserved"]

PROCESS = 30_000_000  # bytes that a process does not share with others, once it has imported what an actor needs
REMEDY = (
    "Lower the capacity, the queue, the rollout or the counts that make the largest so large; `starling formation NAME "
    "--memory` lists all parts."
)


@dataclass(frozen=True)
class Reserved:
    """Memory of all roles of a kind, or of an edge."""

    whose: str
    purpose: str
    count: int
    each: int  # bytes

    @property
    def total(self) -> int:
        return self.count * self.each


def reserved(program: Program) -> list[Reserved]:
    """Everything that grows with settings: tables, frames, states, chunks, what flows between roles, processes.

    Not environments, nor the frameworks that learners import.
    """
    return [*_of_roles(program), *_of_edges(program)]


def _of_roles(program: Program) -> Iterator[Reserved]:
    options, formation = program.run.options, program.formation
    for roles in formation.roles:
        for reserve in roles.reserves:
            parts: dict[str, int] = imported(reserve)(program)
            yield from (Reserved(roles.kind, purpose, roles.count, size) for purpose, size in parts.items())
    acting = sum(roles.count for roles in formation.roles if roles.acts)
    processes = max(0, options.env_workers - 1) * acting
    if EXECUTORS[program.run.executor].apart:
        processes += len(list(formation))
    if processes:
        yield Reserved("processes", "at least", processes, PROCESS)


def _of_edges(program: Program) -> Iterator[Reserved]:
    for edge, size in sizes_of(program.formation, program.messages()).items():
        yield Reserved(edge, "between roles", 1, size)


def check_memory(program: Program) -> None:
    """Refuse a run that does not fit into the memory that is available."""
    parts: dict[str, int] = {}
    try:
        for found in (_of_roles, _of_edges):  # a blank message has the size of a network, which is checked by then
            parts |= {f"{each.whose}, {each.purpose}:": each.total for each in found(program)}
            refuse_if_too_large("the run", parts, REMEDY)
    except MemoryError as error:
        raise ConfigError(f"the run does not fit into memory: {error}. Make its networks or chunks smaller.") from error
