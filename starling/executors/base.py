"""What executors share: what they run, the code of its roles, and who watches it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from starling.core.effects import Checkpoint, Effect, Interrupted, Pulse, Report, RoleCode
from starling.core.errors import RunError
from starling.core.trees import Tree
from starling.executors.waits import wait_of
from starling.formations import Formation, RoleId, Start

__all__ = [
    "OUTWARD",
    "DeadlockError",
    "Executable",
    "ExecutorKind",
    "Results",
    "Running",
    "Start",
    "Watcher",
    "outward",
]


class DeadlockError(RunError):
    """Every role waits for another, in these effects; a role without one is done."""

    def __init__(self, effects: Mapping[RoleId, Effect | None], when: str = "") -> None:
        waits = "; ".join(f"{role} {wait_of(effect)}" for role, effect in effects.items() if effect is not None)
        super().__init__(f"nobody can go on{when}: {waits}.")


class Executable(Protocol):
    """What to run: a formation and the code of its roles.

    ``spec`` is what another process needs to make it again: ``{"factory": "module:function", "settings": {…}}``.
    """

    formation: Formation
    directory: Path | None  # where the run is kept
    simulation: Mapping[str, Any]  # settings of ``SimulatedFaults``
    pin_cpus: bool  # whether processes are kept to a processor each
    heartbeat: float  # seconds that a process may be without a sign of life; 0: any
    step_note: Path | None  # where a process notes which call of an environment it makes

    @property
    def record(self) -> Path | None:
        """Where to write down the choices of an asynchronous run, if they are to be."""

    def role(self, role: RoleId, start: Start) -> RoleCode:
        """The code of a role; what it returns when done is its result."""

    def spec(self) -> dict[str, Any]: ...

    def environment(self, role: RoleId) -> Mapping[str, str]:
        """Variables of a role's own process, beside those of this one."""

    def save(self, role: RoleId, checkpoint: Checkpoint, seconds: float) -> None:
        """Make a role's state safe."""

    def messages(self) -> Mapping[str, Tree]:
        """A blank message of every edge ("weights", or "weights/1" where sources differ): all have its layout."""


class Watcher(Protocol):
    """Receives what roles report, keeps their checkpoints, and may ask them to stop."""

    def stopping(self, role: RoleId, steps: int) -> bool: ...

    def report(self, role: RoleId, report: Report) -> None: ...

    def checkpoint(self, role: RoleId, checkpoint: Checkpoint) -> None: ...

    def status(self, status: dict[str, Any]) -> None:
        """Who does or waits for what, now and then: plain values, as ``starling doctor`` reads them."""


Results = dict[RoleId, Tree]
OUTWARD = (Pulse, Report, Checkpoint)  # effects that are not for an edge


def outward(role: RoleId, effect: Effect, watcher: Watcher) -> Any:
    """Carry out an effect that is not for an edge."""
    if isinstance(effect, Pulse):
        return watcher.stopping(role, effect.steps)
    if isinstance(effect, Report):
        return watcher.report(role, effect)
    assert isinstance(effect, Checkpoint), effect
    return watcher.checkpoint(role, effect)


class Running:
    """A role's code, the effect that it came to, and its result when it is done."""

    def __init__(self, code: RoleCode) -> None:
        self._code = code
        self.effect: Effect | None = None
        self.done = False
        self.result: Tree = None

    def resume(self, value: Any = None) -> Effect | None:
        """Let the role go on to its next effect; None where it is done."""
        return self._go_on(lambda: self._code.send(value))

    def interrupt(self) -> Effect | None:
        """Let the role end that waits; raises Interrupted where it cannot."""
        return self._go_on(lambda: self._code.throw(Interrupted()))

    def _go_on(self, step: Callable[[], Effect]) -> Effect | None:
        try:
            self.effect = step()
        except StopIteration as stop:
            self.done, self.result, self.effect = True, stop.value, None
        return self.effect

    def close(self) -> None:
        self._code.close()


@dataclass(frozen=True)
class ExecutorKind:
    """An executor: what it does, and the ``module:function`` of ``run(program, watcher, restore) -> Results``."""

    text: str
    run: str
    takes: tuple[str, ...] = ()  # settings of a run that have an effect on some executors alone
    apart: bool = False  # whether each role has a process of its own on this machine
