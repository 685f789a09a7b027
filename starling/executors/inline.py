"""``inline``: every role in one thread, in a fixed order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starling.core.effects import Effect, Publish, Put, Reply, Sleep
from starling.executors.base import OUTWARD, DeadlockError, Executable, Results, Running, Start, Watcher, outward
from starling.executors.edges import WAIT, Edges, Storage
from starling.executors.memory_edges import MemoryEdges
from starling.formations import RoleId

__all__ = ["Turns", "run"]

ROUND = 1e9  # seconds that a round of turns counts for: longer than any wait


def run(program: Executable, watcher: Watcher, restore: bool = False) -> Results:
    """Run until every role of the kind that ends the run is done; returns their results."""
    turns = Turns(program, MemoryEdges(program.formation), Start(restore=restore))

    def carry_out(role: RoleId, effect: Effect) -> Any:
        return outward(role, effect, watcher) if isinstance(effect, OUTWARD) else turns.edges.attempt(role, effect)

    return turns.run(carry_out)


class Turns:
    """Roles that take turns. ``never_held_up`` treats every role as done: then nobody waits for its sake."""

    def __init__(self, program: Executable, storage: Storage, start: Start, never_held_up: bool = False) -> None:
        self._ends, self._round = program.formation.ends, 0
        self._roles: dict[RoleId, Running] = {}
        for role in program.formation:
            self._roles[role] = Running(program.role(role, start))
            self._roles[role].resume()
        self.edges = Edges(
            program.formation,
            storage,
            clock=lambda: self._round * ROUND,
            done=lambda role: never_held_up or self._roles[role].done,
        )

    def run(self, carry_out: Callable[[RoleId, Effect], Any]) -> Results:
        """Give each role its turn until those that end the run are done; a round without progress is a deadlock."""
        ending = {role: code for role, code in self._roles.items() if role.kind == self._ends}
        try:
            while not all(code.done for code in ending.values()):
                progressed = [self._take_turn(role, carry_out) for role, code in self._roles.items() if not code.done]
                self._round += 1
                if not any(progressed) and all(self.edges.deadline(role) is None for role in self._roles):
                    raise DeadlockError({role: code.effect for role, code in self._roles.items()})
        finally:
            for code in reversed(self._roles.values()):
                code.close()
        return {role: code.result for role, code in ending.items()}

    def _take_turn(self, role: RoleId, carry_out: Callable[[RoleId, Effect], Any]) -> bool:
        """Let a role run until it must wait, or has given others something to do; whether it came any further."""
        progressed, code = False, self._roles[role]
        while (effect := code.effect) is not None:
            result = carry_out(role, effect)
            if result is WAIT:
                break
            code.resume(result)
            progressed = True
            if isinstance(effect, (Put, Publish, Reply, Sleep)):
                break
        return progressed
