"""``inline``: every role in one thread, in a fixed order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starling.core.effects import Checkpoint, Effect, Publish, Pulse, Put, Reply, Report, RoleCode, Sleep
from starling.executors.base import DeadlockError, Program, Results, Start, Watcher
from starling.executors.edges import WAIT, Edges, Storage
from starling.executors.memory_edges import MemoryEdges
from starling.executors.waits import wait_of
from starling.formations import RoleId

__all__ = ["Turns", "outward", "run"]

ROUND = 1e9  # seconds that a round of turns counts for: longer than any wait


def run(program: Program, watcher: Watcher, restore: bool = False) -> Results:
    """Run until every role of the kind that ends the run is done; returns their results."""
    turns = Turns(program, MemoryEdges(program.formation), Start(restore=restore))
    return turns.run(lambda role, effect: outward(role, effect, watcher))


def outward(role: RoleId, effect: Effect, watcher: Watcher) -> Any:
    """Carry out an effect that is not for an edge."""
    if isinstance(effect, Pulse):
        return watcher.stopping(role, effect.steps)
    if isinstance(effect, Report):
        return watcher.report(role, effect)
    assert isinstance(effect, Checkpoint), effect
    return watcher.checkpoint(role, effect)


class _Turn:
    """One role: its code, the effect it waits for, and its result when done."""

    def __init__(self, role: RoleId, code: RoleCode) -> None:
        self.role, self.code = role, code
        self.effect: Effect | None = None
        self.done, self.result = False, None
        self.resume(None)

    def resume(self, value: Any) -> None:
        """Let the role go on to its next effect."""
        try:
            self.effect = self.code.send(value)
        except StopIteration as stop:
            self.done, self.result, self.effect = True, stop.value, None


class Turns:
    """Roles that take turns. ``never_held_up`` treats every role as done: then nobody waits for its sake."""

    def __init__(self, program: Program, storage: Storage, start: Start, never_held_up: bool = False) -> None:
        self._ends, self._round = program.formation.ends, 0
        self._turns = {role: _Turn(role, program.role(role, start)) for role in program.formation}
        self._edges = Edges(
            program.formation,
            storage,
            clock=lambda: self._round * ROUND,
            done=lambda role: never_held_up or self._turns[role].done,
        )

    def run(self, outward: Callable[[RoleId, Effect], Any]) -> Results:
        """Give each role its turn until those that end the run are done; a round without progress is a deadlock."""
        turns = list(self._turns.values())
        ending = [each for each in turns if each.role.kind == self._ends]
        try:
            while not all(each.done for each in ending):
                progressed = [self._take_turn(each, outward) for each in turns if not each.done]
                self._round += 1
                if not any(progressed) and all(self._edges.deadline(each.role) is None for each in turns):
                    waits = "; ".join(f"{each.role} {wait_of(each.effect)}" for each in turns if each.effect)
                    raise DeadlockError(f"nobody can go on: {waits}.")
        finally:
            for each in reversed(turns):
                each.code.close()
        return {each.role: each.result for each in ending}

    def _take_turn(self, turn: _Turn, outward: Callable[[RoleId, Effect], Any]) -> bool:
        """Let a role run until it must wait, or has given others something to do; whether it came any further."""
        progressed = False
        while (effect := turn.effect) is not None:
            result: Any
            if isinstance(effect, (Pulse, Report, Checkpoint)):
                result = outward(turn.role, effect)
            else:
                result = self._edges.attempt(turn.role, effect)
            if result is WAIT:
                break
            turn.resume(result)
            progressed = True
            if isinstance(effect, (Put, Publish, Reply, Sleep)):
                break
        return progressed
