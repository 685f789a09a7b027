"""``simulated``: every role in one thread, on a virtual clock, with faults that follow from a seed.

Roles do their real work, but how long it takes is drawn; messages travel, overtake each other, are lost and sent again;
roles crash, freeze and restart from their last checkpoint. The same seed gives the same run, event for event.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable
from functools import partial
from typing import Any

from starling.core.effects import Checkpoint, Effect
from starling.core.trees import Tree
from starling.executors.base import OUTWARD, DeadlockError, Executable, Results, Running, Start, Watcher, outward
from starling.executors.edges import WAIT, Edges
from starling.executors.memory_edges import MemoryEdges
from starling.executors.restarts import restart_of
from starling.executors.simulated_faults import FaultSchedule, SimulatedFaults
from starling.executors.waits import wait_of
from starling.formations import Edge, Formation, RoleId

__all__ = ["Simulation", "run"]


def run(program: Executable, watcher: Watcher, restore: bool = False) -> Results:
    """Run until every role of the kind that ends the run is done; returns their results."""
    return Simulation(program, watcher, SimulatedFaults.of(program.simulation), restore).run()


class SimulatedRole:
    """A role in the simulation."""

    def __init__(self, role: RoleId) -> None:
        self.role = role
        self.code: Running | None = None  # while it is alive, and when it is done
        self.effect: Effect | None = None  # that it waits in
        self.life = 0  # counts starts: what was planned for an earlier life is void
        self.thaws_at = 0.0
        self.saved: dict[int, Tree] = {}  # its last two checkpoints, by their steps

    @property
    def done(self) -> bool:
        return self.code is not None and self.code.done


class Simulation:
    """See the top of this file. ``log`` is a digest of all events, ``events`` their number."""

    def __init__(self, program: Executable, watcher: Watcher, faults: SimulatedFaults, restore: bool = False) -> None:
        self.program, self.watcher, self.faults = program, watcher, faults
        self.formation: Formation = program.formation
        self.schedule = FaultSchedule(faults, self.formation)
        self.now, self.events, self.crashes, self.freezes = 0.0, 0, 0, 0
        self._digest = hashlib.sha256()
        self._plans: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.roles = {role: SimulatedRole(role) for role in self.formation}
        self._clear()
        for role in self.formation:
            self._start(role, Start(restore=restore))

    @property
    def log(self) -> str:
        return self._digest.hexdigest()

    def run(self) -> Results:
        ending = [each for role, each in self.roles.items() if role.kind == self.formation.ends]
        try:
            while not all(each.done for each in ending):
                if not self._plans:
                    raise DeadlockError({r: each.effect for r, each in self.roles.items()}, f" at {self.now:.3f} s")
                self.now, _, act = heapq.heappop(self._plans)
                act()
        finally:
            for each in self.roles.values():
                if each.code is not None:
                    each.code.close()
        return {each.role: each.code.result for each in ending if each.code}

    # -- time

    def _plan(self, at: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._plans, (at, self._count, act))

    def _plan_for(self, each: SimulatedRole, at: float, act: Callable[[], None]) -> None:
        """Plan something of a role's present life; a frozen role does it when it thaws."""
        life = each.life

        def unless_gone() -> None:
            if each.life != life:
                return
            if self.now < each.thaws_at:
                self._plan(each.thaws_at, unless_gone)
                return
            act()

        self._plan(at, unless_gone)

    def _note(self, role: RoleId, what: str) -> None:
        self.events += 1
        self._digest.update(f"{self.now:.9f} {role} {what}\n".encode())

    # -- edges

    def _clear(self) -> None:
        """Empty every edge; what is on its way over the old ones arrives nowhere."""
        self.storage = MemoryEdges(self.formation, self._carry)
        self._edges = Edges(self.formation, self.storage, lambda: self.now, self._is_done, self._wake)

    def _is_done(self, role: RoleId) -> bool:
        return self.roles[role].done

    def _carry(self, edge: Edge, source: int, receiver: RoleId, arrive: Callable[[], None]) -> None:
        """Let something travel; what is lost on a queue, or not acknowledged, is sent again."""
        way, delay, copies = (edge.name, source, receiver.index), 0.0, 1
        if edge.kind == "queue":
            while self.schedule.loses(*way):
                delay += self.faults.resend
            copies += self.schedule.loses(*way)

        def arrived() -> None:
            arrive()
            self._wake(receiver, edge.name)

        for copy in range(copies):
            self._plan(self.now + delay + copy * self.faults.resend + self.schedule.latency(*way), arrived)

    def _wake(self, role: RoleId, edge: str) -> None:
        """Something happened on an edge that a role may have waited for."""
        each = self.roles[role]
        edges = wait_of(each.effect).edges
        if edge in edges or self.formation.edge(edge).answers in edges:
            self._plan_for(each, self.now, partial(self._try, each))

    # -- lives

    def _start(self, role: RoleId, start: Start) -> None:
        each = self.roles[role]
        each.life += 1
        each.thaws_at = 0.0
        self._edges.restart(role)
        self._note(role, "starts")
        each.code = Running(self.program.role(role, start))
        self._plan_for(each, self.now, partial(self._resume, each))
        for kind, strike in (("crash", self._crash), ("freeze", self._freeze)):
            after = self.schedule.next_fault(role, kind)
            if after is not None:
                self._plan_for(each, self.now + after, partial(strike, each))

    def _crash(self, each: SimulatedRole) -> None:
        if each.done:
            return
        self.crashes += 1
        self._note(each.role, "crashes")
        self._end(each)
        if not self.formation.restarts_all(each.role.kind):
            self._plan(self.now + self.faults.restart, partial(self._restart, each))
            return
        for other in self.roles.values():
            self._end(other)
        self._clear()
        self._plan(self.now + self.faults.restart, self._restart_all)

    def _end(self, each: SimulatedRole) -> None:
        each.effect = None
        each.life += 1
        if each.code is not None:
            each.code.close()
            each.code = None

    def _restart(self, each: SimulatedRole) -> None:
        state = self._last_state(each)
        self._start(each.role, restart_of(self.formation, each.role, each.life, self.storage, self._is_done, state))

    def _restart_all(self) -> None:
        for role, each in self.roles.items():
            self._start(role, Start(each.life, restore=True, state=self._last_state(each)))

    def _last_state(self, each: SimulatedRole) -> Tree:
        """The state of its last checkpoint, or of the last that all have with which it is joined."""
        alike = [other for role, other in self.roles.items() if role.kind == each.role.kind]
        together = alike if self.formation.joined(each.role.kind) else [each]
        last = max(set.intersection(*(set(one.saved) for one in together)), default=-1)
        each.saved = {step: state for step, state in each.saved.items() if step <= last}
        return each.saved.get(last)

    def _freeze(self, each: SimulatedRole) -> None:
        self.freezes += 1
        self._note(each.role, "freezes")
        each.thaws_at = self.now + self.faults.frozen
        after = self.schedule.next_fault(each.role, "freeze")
        if after is not None:
            self._plan_for(each, each.thaws_at + after, partial(self._freeze, each))

    # -- effects

    def _resume(self, each: SimulatedRole, value: Any = None) -> None:
        """Let a role work up to its next effect, which it comes to when the work is done."""
        assert each.code is not None
        effect = each.code.resume(value)
        if effect is not None:
            self._plan_for(each, self.now + self.schedule.work(each.role, effect), partial(self._issue, each, effect))
            return
        self._note(each.role, "is done")
        for other in self.roles.values():  # it holds nobody up any more
            if other.effect is not None:
                self._plan_for(other, self.now, partial(self._try, other))

    def _issue(self, each: SimulatedRole, effect: Effect) -> None:
        if isinstance(effect, OUTWARD):
            self._note(each.role, type(effect).__name__)
            if isinstance(effect, Checkpoint):
                self._keep(each, effect)
            self._resume(each, outward(each.role, effect, self.watcher))
            return
        each.effect = effect
        self._try(each)

    def _keep(self, each: SimulatedRole, checkpoint: Checkpoint) -> None:
        """Remember a role's last two states."""
        saved = {**each.saved, checkpoint.steps: checkpoint.state()}
        each.saved = {step: saved[step] for step in sorted(saved)[-2:]}

    def _try(self, each: SimulatedRole) -> None:
        """Carry out what a role waits for, if that is possible now."""
        effect = each.effect
        if effect is None or self.now < each.thaws_at:
            return
        waited_until = self._edges.deadline(each.role)
        result = self._edges.attempt(each.role, effect)
        if result is not WAIT:
            each.effect = None
            self._note(each.role, f"{type(effect).__name__} {'|'.join(wait_of(effect).edges)}")
            self._resume(each, result)
            return
        deadline = self._edges.deadline(each.role)
        if deadline is not None and waited_until is None:
            self._plan_for(each, deadline, partial(self._try, each))
