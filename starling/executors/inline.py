"""``inline``: every role in one thread, in a fixed order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starling.core.effects import Checkpoint, Effect, Publish, Pulse, Put, Report, RoleCode, Sleep
from starling.core.trees import Tree
from starling.executors.base import DeadlockError, Program, Results, Start, Watcher
from starling.executors.memory_edges import WAIT, Mailroom
from starling.executors.waits import describe
from starling.formations import RoleId

__all__ = ["Turn", "outward", "run", "take_turns"]


class Turn:
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


def outward(role: RoleId, effect: Effect, watcher: Watcher) -> Any:
    """Carry out an effect that is not for an edge."""
    if isinstance(effect, Pulse):
        return watcher.stopping(role, effect.steps)
    if isinstance(effect, Report):
        return watcher.report(role, effect)
    if isinstance(effect, Checkpoint):
        return watcher.checkpoint(role, effect)
    raise TypeError(f"{effect!r:.80} is no effect")


def run(program: Program, watcher: Watcher, restore: bool = False) -> Results:
    """Run until every role of the kind that ends the run is done; returns their results."""
    mail = Mailroom(program.formation)
    turns = [Turn(role, program.role(role, Start(restore=restore))) for role in program.formation]
    return take_turns(turns, program.formation.ends, lambda turn: _turn(turn, mail, watcher))


def take_turns(turns: list[Turn], ends: str, turn: Callable[[Turn], bool]) -> Results:
    """Give each role its turn until those of the kind ``ends`` are done; a round without progress is a deadlock."""
    ending = [each for each in turns if each.role.kind == ends]
    try:
        while not all(each.done for each in ending):
            if not sum([turn(each) for each in turns if not each.done]):
                waits = "; ".join(f"{each.role} {describe(each.effect)}" for each in turns if each.effect is not None)
                raise DeadlockError(f"nobody can go on: {waits}.")
    finally:
        for each in reversed(turns):
            each.code.close()
    return {each.role: each.result for each in ending}


def _turn(turn: Turn, mail: Mailroom, watcher: Watcher) -> bool:
    """Let a role run until it must wait, or has given others something to do."""
    progressed = False
    while turn.effect is not None:
        effect = turn.effect
        result: Tree
        if isinstance(effect, Sleep):
            result = None  # others have had their turn: that is all the time there is
        elif isinstance(effect, (Pulse, Report, Checkpoint)):
            result = outward(turn.role, effect, watcher)
        else:
            result = mail.attempt(turn.role, effect)
            if result is WAIT:
                return progressed
        turn.resume(result)
        if turn.done:
            mail.done.add(turn.role)
        progressed = True
        if isinstance(effect, (Put, Publish, Sleep)):
            break
    return progressed
