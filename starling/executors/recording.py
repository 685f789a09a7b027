"""Record and replay: an asynchronous run again, bit for bit, in one thread.

A role is deterministic but for what the executor chose for it: whose message came first, how new the weights were, when
to stop. ``Recorder`` writes these choices down, role by role; ``replay`` makes them again.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from starling.core.effects import (
    Checkpoint,
    Effect,
    Latest,
    Message,
    Newest,
    Publish,
    Pulse,
    Put,
    Report,
    Take,
    TakeMany,
)
from starling.core.errors import RunError
from starling.executors.base import Program, Results, Start, Watcher
from starling.executors.inline import Turn, outward, take_turns
from starling.executors.memory_edges import WAIT, Mailroom, receiver_of, sender_of
from starling.formations import Formation, RoleId

__all__ = ["Recorder", "replay"]


class Recorder:
    """Writes a role's choices to a file as they are made."""

    def __init__(self, directory: Path, formation: Formation, role: RoleId, incarnation: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._edges = [edge.name for edge in formation.edges]
        self._file: BinaryIO = open(directory / f"{role}.{incarnation}", "wb")  # noqa: SIM115

    def note(self, effect: Effect, result: Any) -> None:
        numbers: list[int] = []
        if isinstance(effect, Take):
            numbers = [self._edges.index(result.edge), result.sender]
        elif isinstance(effect, TakeMany):
            numbers = [len(result), *(message.sender for message in result)]
        elif isinstance(effect, Latest):
            numbers = [result.number]
        elif isinstance(effect, Pulse):
            numbers = [int(result)]
        if numbers:
            self._file.write(np.asarray(numbers, "<i8").tobytes())

    def close(self) -> None:
        self._file.close()


class Choices:
    """A role's recorded choices, one after another."""

    def __init__(self, path: Path) -> None:
        self._numbers = deque(np.frombuffer(path.read_bytes(), "<i8").tolist())

    def __bool__(self) -> bool:
        return bool(self._numbers)

    def peek(self, count: int) -> list[int]:
        return [self._numbers[i] for i in range(count)]

    def skip(self, count: int) -> None:
        for _ in range(count):
            self._numbers.popleft()


class Archive(Mailroom):
    """Edges that keep every published value until nobody needs it, and let nobody wait for room."""

    def __init__(self, formation: Formation, choices: dict[RoleId, Choices]) -> None:
        super().__init__(formation)
        self._choices = choices
        self._edge_names = [edge.name for edge in formation.edges]
        self._values: dict[tuple[str, int], dict[int, Newest]] = {}
        self._read: dict[tuple[str, int], dict[RoleId, int]] = {}  # the last number that each reader has read
        for edge in formation.edges:
            if edge.kind == "broadcast":
                readers = [role for role in formation if role.kind in (edge.target, *edge.also)]
                for source in range(formation.count(edge.source)):
                    heard = [r for r in readers if not edge.pinned or sender_of(formation, edge, r, None) == source]
                    self._read[edge.name, source] = dict.fromkeys(heard, 0)

    def attempt(self, role: RoleId, effect: Effect) -> Any:
        choices = self._choices[role]
        if isinstance(effect, Put):
            edge = self.edges[effect.edge]
            target = receiver_of(self.formation, edge, role.index, effect.to)
            self.lanes[edge.name, role.index, target].append(effect.item)
            return None
        if isinstance(effect, Publish):
            super().attempt(role, effect)
            newest = self.cells[effect.edge, role.index]
            self._values.setdefault((effect.edge, role.index), {})[newest.number] = newest
            return None
        if not isinstance(effect, (Take, TakeMany, Latest)):
            return super().attempt(role, effect)
        if not choices:
            return WAIT  # what came after was not part of the run
        if isinstance(effect, Latest):
            return self._latest(role, effect, choices)
        return self._take(role, effect, choices)

    def _latest(self, role: RoleId, effect: Latest, choices: Choices) -> Any:
        sender = sender_of(self.formation, self.edges[effect.edge], role, effect.sender)
        key, (number,) = (effect.edge, sender), choices.peek(1)
        value = self._values.get(key, {}).get(number, WAIT)
        if value is not WAIT:
            choices.skip(1)
            self._read[key][role] = number
            needed = min(last for reader, last in self._read[key].items() if self._choices[reader] or reader == role)
            for old in [n for n in self._values[key] if n < needed]:
                del self._values[key][old]
        return value

    def _take(self, role: RoleId, effect: Take | TakeMany, choices: Choices) -> Any:
        if isinstance(effect, Take):
            edge, sender = choices.peek(2)
            name = self._edge_names[edge]
            if not self.lanes[name, sender, role.index]:
                return WAIT
            choices.skip(2)
            return self.take_from(role, name, sender)
        (count,) = choices.peek(1)
        senders = choices.peek(1 + count)[1:]
        if not all(self.lanes[effect.edge, sender, role.index] for sender in senders):
            return WAIT
        choices.skip(1 + count)
        messages: list[Message] = [self.take_from(role, effect.edge, sender) for sender in senders]
        return messages


def replay(program: Program, watcher: Watcher, directory: Path) -> Results:
    """Run ``program`` again with the choices recorded in ``directory``."""
    again = sorted(path.name for path in directory.glob("*") if not path.name.endswith(".0"))
    if again:
        raise RunError(f"{again[0].rpartition('.')[0]} was lost and started again; such a run cannot be replayed.")
    missing = [str(role) for role in program.formation if not (directory / f"{role}.0").exists()]
    if missing:
        raise RunError(f"{directory} has no record of {missing[0]}; was the run recorded (--record) to its end?")
    choices = {role: Choices(directory / f"{role}.0") for role in program.formation}
    mail = Archive(program.formation, choices)
    turns = [Turn(role, program.role(role, Start())) for role in program.formation]
    return take_turns(turns, program.formation.ends, lambda turn: _turn(turn, mail, choices[turn.role], watcher))


def _turn(turn: Turn, mail: Archive, choices: Choices, watcher: Watcher) -> bool:
    """Let a role run until it must wait, or has given others something to do."""
    progressed = False
    while turn.effect is not None:
        effect = turn.effect
        if isinstance(effect, Pulse):
            if not choices:
                return progressed
            result: Any = bool(choices.peek(1)[0])
            choices.skip(1)
        elif isinstance(effect, Report):
            result = outward(turn.role, effect, watcher)
        elif isinstance(effect, Checkpoint):
            result = None
        elif (result := mail.attempt(turn.role, effect)) is WAIT:
            return progressed
        turn.resume(result)
        progressed = True
        if isinstance(effect, (Put, Publish)):
            break
    return progressed
