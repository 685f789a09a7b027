"""Record and replay: an asynchronous run again, bit for bit, in one thread.

A role is deterministic but for what its executor chose: whose message came first, how new the weights were, when to
stop. ``Recorder`` writes these choices down, role by role. In a replay everything that is sent is held back until it is
its receiver's next choice, so the rules that chose it then must choose it again.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from starling.core.effects import Call, Checkpoint, Effect, Latest, Pulse, Report, Take, TakeMany
from starling.core.errors import RunError
from starling.core.lanes import Arrive
from starling.executors.base import Executable, Results, Start, Watcher
from starling.executors.edges import WAIT
from starling.executors.inline import Turns
from starling.executors.memory_edges import MemoryEdges
from starling.formations import Edge, Formation, RoleId, publisher_of
from starling.records.choices import LATEST, PULSE, TAKE, Choices, RecordedChoice

__all__ = ["Recorder", "replay"]

Way = tuple[RoleId, int, int]  # to a role, over the edge in this place, from this sender


class Recorder:
    """Writes a role's choices to a file as they are made."""

    def __init__(self, directory: Path, formation: Formation, role: RoleId, incarnation: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._formation, self._role = formation, role
        self._places = {edge.name: place for place, edge in enumerate(formation.edges)}
        self._file = open(directory / f"{role}.{incarnation}", "w", encoding="utf-8")  # noqa: SIM115

    def note(self, effect: Effect, result: Any) -> None:
        """Write down the choice in an effect's result, if there was one."""
        if isinstance(effect, (Take, Call, TakeMany)):
            messages = result if isinstance(effect, TakeMany) else [result]
            self._write(TAKE, [number for m in messages for number in (self._places[m.edge], m.sender)])
        elif isinstance(effect, Latest):
            sender = publisher_of(self._formation, self._role, effect)
            self._write(LATEST, [self._places[effect.edge], sender, result.number])
        elif isinstance(effect, Pulse):
            self._write(PULSE, [int(result)])

    def _write(self, kind: str, numbers: list[int]) -> None:
        self._file.write(json.dumps(RecordedChoice(kind, numbers)) + "\n")

    def close(self) -> None:
        self._file.close()


class Replay:
    """Runs a program in turns; what is sent to a role arrives when it is the role's next choice."""

    def __init__(self, program: Executable, watcher: Watcher, choices: dict[RoleId, Choices]) -> None:
        self._formation, self._watcher, self._choices = program.formation, watcher, choices
        self._places = {edge.name: place for place, edge in enumerate(self._formation.edges)}
        self._read = {(role, *numbers) for role, each in choices.items() for kind, numbers in each if kind == LATEST}
        self._sent: Counter[Way] = Counter()
        self._held: defaultdict[Way, dict[int, Arrive]] = defaultdict(dict)  # by their numbers, from 1
        self._storage = MemoryEdges(self._formation, self._hold, unlimited=True)
        self._turns = Turns(program, self._storage, Start(), never_held_up=True)

    def run(self) -> Results:
        return self._turns.run(self._carry_out)

    def _carry_out(self, role: RoleId, effect: Effect) -> Any:
        result: Any = WAIT
        match effect:
            case Checkpoint():
                return None
            case Report():
                return self._watcher.report(role, effect)
            case Pulse():
                numbers = self._choices[role].next(PULSE)
                result = WAIT if numbers is None else bool(numbers[0])
            case Latest():
                if self._show_value(role, effect):
                    result = self._turns.edges.attempt(role, effect)
            case Take() | TakeMany() | Call():
                self._show_messages(role)
                result = self._turns.edges.attempt(role, effect)
            case _:
                return self._turns.edges.attempt(role, effect)
        if result is not WAIT:
            self._choices[role].pop()
        return result

    def _hold(self, edge: Edge, source: int, receiver: RoleId, arrive: Arrive) -> None:
        """Keep a message until it is chosen, and a value if it ever is."""
        way = receiver, self._places[edge.name], source
        self._sent[way] += 1
        if edge.kind == "queue" or (*way, self._sent[way]) in self._read:
            self._held[way][self._sent[way]] = arrive

    def _let_arrive(self, way: Way, number: int) -> None:
        if number in self._held[way]:
            self._held[way].pop(number)()

    def _show_value(self, role: RoleId, effect: Latest) -> bool:
        """Let the value of the role's next choice arrive; whether it has been published, and by whom the role reads."""
        place, sender = self._places[effect.edge], publisher_of(self._formation, role, effect)
        numbers = self._choices[role].next(LATEST)
        if numbers is None or numbers[:2] != [place, sender] or self._sent[role, place, sender] < numbers[2]:
            return False
        self._let_arrive((role, place, sender), numbers[2])
        return True

    def _show_messages(self, role: RoleId) -> None:
        """Let the messages of the role's next choice arrive; none before all of them are there."""
        numbers, names, arriving = self._choices[role].next(TAKE) or [], list(self._places), []
        for (place, source), count in Counter(zip(numbers[::2], numbers[1::2])).items():
            taken = self._storage.lane(names[place], source, role.index).taken
            arriving += [((role, place, source), taken + 1 + i) for i in range(count)]
        if all(self._sent[way] >= number for way, number in arriving):
            for way, number in arriving:
                self._let_arrive(way, number)


def replay(program: Executable, watcher: Watcher, directory: Path) -> Results:
    """Run ``program`` again with the choices recorded in ``directory``."""
    again = sorted(path.name for path in directory.glob("*") if not path.name.endswith(".0"))
    if again:
        raise RunError(f"{again[0].rpartition('.')[0]} crashed and was restarted; such a run cannot be replayed.")
    missing = [str(role) for role in program.formation if not (directory / f"{role}.0").exists()]
    if missing:
        raise RunError(f"{directory} has no record of {missing[0]}; was the run recorded (--record) to its end?")
    return Replay(
        program, watcher, {role: Choices(str(role), directory / f"{role}.0") for role in program.formation}
    ).run()
