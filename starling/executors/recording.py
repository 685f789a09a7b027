"""Record and replay: an asynchronous run again, bit for bit, in one thread.

A role is deterministic but for what its executor chose: whose message came first, how new the weights were, when to
stop. ``Recorder`` writes these choices down, role by role. In a replay the edges show a role nothing but its next
choice, so the rules that chose it then must choose it again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from starling.core.effects import Call, Checkpoint, Effect, Latest, Newest, Pulse, Take, TakeMany
from starling.core.errors import RunError
from starling.core.trees import Tree
from starling.executors.base import Program, Results, Start, Watcher
from starling.executors.edges import WAIT, Promise, publisher_of, resolved
from starling.executors.inline import Turns, outward
from starling.executors.memory_edges import MemoryGroup
from starling.formations import Formation, RoleId

__all__ = ["RecordedEdges", "Recorder", "replay"]

TAKE, LATEST, PULSE = "take", "latest", "pulse"
KINDS = (TAKE, LATEST, PULSE)


class Choice(NamedTuple):
    """What an executor chose for a role; as a record: its kind, how many numbers follow, and they."""

    kind: str
    numbers: list[int]  # take: (edge, sender) of each message; latest: edge, sender, number; pulse: whether to stop


class Recorder:
    """Writes a role's choices to a file as they are made."""

    def __init__(self, directory: Path, formation: Formation, role: RoleId, incarnation: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._formation, self._role = formation, role
        self._places = {edge.name: place for place, edge in enumerate(formation.edges)}
        self._file: BinaryIO = open(directory / f"{role}.{incarnation}", "wb")  # noqa: SIM115

    def note(self, effect: Effect, result: Any) -> None:
        """Write down the choice in an effect's result, if there was one."""
        if isinstance(effect, (Take, Call, TakeMany)):
            messages = result if isinstance(effect, TakeMany) else [result]
            self._write(TAKE, [number for m in messages for number in (self._places[m.edge], m.sender)])
        elif isinstance(effect, Latest):
            sender = publisher_of(self._formation, self._formation.edge(effect.edge), self._role, effect.sender)
            self._write(LATEST, [self._places[effect.edge], sender, result.number])
        elif isinstance(effect, Pulse):
            self._write(PULSE, [int(result)])

    def _write(self, kind: str, numbers: list[int]) -> None:
        self._file.write(np.asarray([KINDS.index(kind), len(numbers), *numbers], "<i8").tobytes())

    def close(self) -> None:
        self._file.close()


class Choices:
    """A role's recorded choices, one after another."""

    def __init__(self, role: RoleId, path: Path) -> None:
        self._role, self._choices = role, deque(_read(path))

    def __iter__(self) -> Iterator[Choice]:
        return iter(self._choices)

    def next(self, kind: str) -> list[int] | None:
        """The numbers of the next choice; None after the last: what came then was not part of the run."""
        if not self._choices:
            return None
        if self._choices[0].kind != kind:
            raise RunError(
                f"{self._role} makes a {kind} where {self._choices[0].kind} was recorded; a replay needs the code and "
                "the settings of the recorded run."
            )
        return self._choices[0].numbers

    def pop(self) -> None:
        self._choices.popleft()


def _read(path: Path) -> list[Choice]:
    """The choices in a file; a last one that was cut off is none."""
    content, place, found = path.read_bytes(), 0, []
    numbers = np.frombuffer(content, "<i8", len(content) // 8).tolist()
    while place + 1 < len(numbers) and place + 2 + numbers[place + 1] <= len(numbers):
        kind, count = numbers[place : place + 2]
        found.append(Choice(KINDS[kind], numbers[place + 2 : place + 2 + count]))
        place += 2 + count
    return found


class RecordedLane:
    """A queue without limit, of which its receiver sees what it took when it was recorded."""

    def __init__(self, edges: RecordedEdges, place: int, source: int, receiver: RoleId) -> None:
        self._edges, self._key, self._receiver = edges, (place, source), receiver
        self.items: deque[Tree] = deque()
        self.sent = self.taken = 0

    def put(self, item: Tree) -> bool:
        self.items.append(item)
        self.sent += 1
        return True

    def filled(self) -> int:
        return self._edges.takeable(self._receiver)[self._key]

    def take(self, borrow: bool) -> Tree:
        self._edges.note_taken(self._receiver, self._key)
        self.taken += 1
        return self.items.popleft()

    def release(self) -> None: ...

    def rewind(self, count: int) -> None:
        raise RunError("a replay has no crashes.")


class RecordedCell:
    """All values that one publisher published and that somebody is yet to read."""

    def __init__(self, choices: dict[RoleId, Choices], place: int, source: int, reads: Counter[int]) -> None:
        self._choices, self._key, self._reads = choices, [place, source], reads
        self._values: dict[int, tuple[Tree | Promise, int]] = {}
        self._published = 0

    def publish(self, value: Tree | Promise, version: int) -> None:
        self._published += 1
        if self._reads[self._published]:
            self._values[self._published] = (value, version)

    def number(self, reader: RoleId) -> int:
        numbers = self._choices[reader].next(LATEST)
        return numbers[2] if numbers and numbers[:2] == self._key and numbers[2] in self._values else 0

    def newest(self, reader: RoleId, known: int) -> Newest:
        number = self.number(reader)
        self._choices[reader].pop()
        value, version = self._values[number]
        self._reads[number] -= 1
        if not self._reads[number]:
            del self._values[number]
        return Newest(None if number == known else resolved(value), version, number)


class RecordedEdges:
    """All edges of a formation, as they were in a recorded run."""

    def __init__(self, formation: Formation, choices: dict[RoleId, Choices]) -> None:
        self._choices = choices
        self._lanes: dict[tuple[str, int, int], RecordedLane] = {}
        self._cells: dict[tuple[str, int], RecordedCell] = {}
        self._groups: dict[str, MemoryGroup] = {}
        self._names = [edge.name for edge in formation.edges]
        reads: dict[tuple[int, int], Counter[int]] = {}
        for kind, numbers in (choice for each in choices.values() for choice in each):
            if kind == LATEST:
                reads.setdefault((numbers[0], numbers[1]), Counter())[numbers[2]] += 1
        for place, edge in enumerate(formation.edges):
            if edge.kind == "collective":
                self._groups[edge.name] = MemoryGroup(formation.count(edge.source))
            elif edge.kind == "broadcast":
                for source in range(formation.count(edge.source)):
                    mine = reads.get((place, source), Counter())
                    self._cells[edge.name, source] = RecordedCell(choices, place, source, mine)
            else:
                for source, target in formation.lanes(edge):
                    lane = RecordedLane(self, place, source, RoleId(edge.target, target))
                    self._lanes[edge.name, source, target] = lane

    def lane(self, edge: str, source: int, target: int) -> RecordedLane:
        return self._lanes[edge, source, target]

    def cell(self, edge: str, source: int) -> RecordedCell:
        return self._cells[edge, source]

    def group(self, edge: str) -> MemoryGroup:
        return self._groups[edge]

    def takeable(self, role: RoleId) -> Counter[tuple[int, int]]:
        """How many messages of each (edge, sender) the role takes next; none before all of them are there."""
        numbers = self._choices[role].next(TAKE) or []
        wanted = Counter(zip(numbers[::2], numbers[1::2]))
        for (place, source), count in wanted.items():
            if len(self._lanes[self._names[place], source, role.index].items) < count:
                return Counter()
        return wanted

    def note_taken(self, role: RoleId, key: tuple[int, int]) -> None:
        """One message of the role's next choice has been taken."""
        numbers = self._choices[role].next(TAKE)
        assert numbers is not None
        place = 2 * list(zip(numbers[::2], numbers[1::2])).index(key)
        del numbers[place : place + 2]
        if not numbers:
            self._choices[role].pop()


def replay(program: Program, watcher: Watcher, directory: Path) -> Results:
    """Run ``program`` again with the choices recorded in ``directory``."""
    again = sorted(path.name for path in directory.glob("*") if not path.name.endswith(".0"))
    if again:
        raise RunError(f"{again[0].rpartition('.')[0]} crashed and was restarted; such a run cannot be replayed.")
    missing = [str(role) for role in program.formation if not (directory / f"{role}.0").exists()]
    if missing:
        raise RunError(f"{directory} has no record of {missing[0]}; was the run recorded (--record) to its end?")
    choices = {role: Choices(role, directory / f"{role}.0") for role in program.formation}

    def beside_edges(role: RoleId, effect: Effect) -> Any:
        if isinstance(effect, Pulse):
            numbers = choices[role].next(PULSE)
            if numbers is None:
                return WAIT
            choices[role].pop()
            return bool(numbers[0])
        return None if isinstance(effect, Checkpoint) else outward(role, effect, watcher)

    return Turns(program, RecordedEdges(program.formation, choices), Start(), never_held_up=True).run(beside_edges)
