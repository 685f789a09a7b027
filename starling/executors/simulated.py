"""``simulated``: every role in one thread, on a virtual clock, in weather that follows from a seed.

Roles do their real work, but how long it takes is drawn; messages travel, overtake each other, are lost and sent again;
roles crash, freeze and start again from their last checkpoint. The same seed gives the same run, event for event.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable
from typing import Any

from starling.core.effects import (
    AllReduce,
    Checkpoint,
    Effect,
    Latest,
    Message,
    Newest,
    Publish,
    Pulse,
    Put,
    Report,
    Sleep,
    Take,
    TakeMany,
)  # fmt: skip
from starling.core.trees import Tree
from starling.executors.base import DeadlockError, Program, Results, Start, Watcher
from starling.executors.inline import outward
from starling.executors.memory_edges import WAIT, mean_of, receiver_of, sender_of
from starling.executors.restarts import restarts_all, where_it_was
from starling.executors.simulated_faults import Forecast, Weather
from starling.executors.waits import describe, edge_of
from starling.formations import Formation, RoleId

__all__ = ["Simulation", "run"]


def run(program: Program, watcher: Watcher, restore: bool = False) -> Results:
    """Run until every role of the kind that ends the run is done; returns their results."""
    return Simulation(program, watcher, Weather.of(program.simulation), restore).run()


class Wire:
    """A queue between two roles whose items travel: sent in order, perhaps out of order on the way, taken in order."""

    def __init__(self, depth: int) -> None:
        self.depth, self.sent, self.taken, self.doubled = depth, 0, 0, 0
        self._there: dict[int, Tree] = {}  # arrived, by number; those just taken stay until they are answered

    @property
    def full(self) -> bool:
        return self.sent - self.taken >= self.depth

    @property
    def filled(self) -> bool:
        return self.taken in self._there

    def arrive(self, number: int, item: Tree) -> None:
        if number < self.taken or number in self._there:
            self.doubled += 1  # its acknowledgement was lost, and it was sent again
        else:
            self._there[number] = item

    def take(self) -> Tree:
        item = self._there[self.taken]
        self.taken += 1
        self._there.pop(self.taken - 1 - self.depth, None)
        return item

    def rewind(self, items_back: int) -> None:
        self.taken -= items_back


class Actor:
    """A role in the simulation."""

    def __init__(self, role: RoleId) -> None:
        self.role = role
        self.code: Any = None
        self.effect: Effect | None = None
        self.life = 0  # counts starts: what was planned for an earlier life is void
        self.alive = self.done = False
        self.thawed_at = 0.0
        self.first_at: float | None = None  # when a TakeMany had its first message
        self.result: Tree = None
        self.saved: dict[int, Tree] = {}  # its last two checkpoints, by their steps
        self.turn = 0


class Simulation:
    """See the top of this file. ``log`` is a digest of all events, ``events`` their number."""

    def __init__(self, program: Program, watcher: Watcher, weather: Weather, restore: bool = False) -> None:
        self.program, self.watcher, self.weather = program, watcher, weather
        self.formation: Formation = program.formation
        self.forecast = Forecast(weather)
        self.now, self.events, self.crashes, self.freezes = 0.0, 0, 0, 0
        self._digest = hashlib.sha256()
        self._plans: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.roles = {role: Actor(role) for role in self.formation}
        self._clear()
        for role in self.formation:
            self._start(role, Start(restore=restore))

    @property
    def log(self) -> str:
        return self._digest.hexdigest()

    def run(self) -> Results:
        ending = [actor for role, actor in self.roles.items() if role.kind == self.formation.ends]
        try:
            while not all(actor.done for actor in ending):
                if not self._plans:
                    waits = "; ".join(f"{a.role} {describe(a.effect)}" for a in self.roles.values() if a.alive)
                    raise DeadlockError(f"nobody can go on at {self.now:.3f} s: {waits}.")
                self.now, _, act = heapq.heappop(self._plans)
                act()
        finally:
            for actor in self.roles.values():
                if actor.code is not None:
                    actor.code.close()
        return {actor.role: actor.result for actor in ending}

    # -- time

    def _plan(self, seconds: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._plans, (self.now + seconds, self._count, act))

    def _plan_for(self, actor: Actor, seconds: float, act: Callable[[], None]) -> None:
        """Plan something of a role's present life; a frozen role does it when it thaws."""
        life = actor.life

        def unless_gone() -> None:
            if actor.life != life or not actor.alive:
                return
            if self.now < actor.thawed_at:
                self._plan(actor.thawed_at - self.now, unless_gone)
                return
            act()

        self._plan(seconds, unless_gone)

    def _note(self, role: RoleId, what: str) -> None:
        self.events += 1
        self._digest.update(f"{self.now:.9f} {role} {what}\n".encode())

    # -- lives

    def _clear(self) -> None:
        """Empty every edge."""
        queues = [edge for edge in self.formation.edges if edge.kind == "queue"]
        self.wires = {(e.name, s, t): Wire(e.depth) for e in queues for s, t in self.formation.lanes(e)}
        self._cells: dict[tuple[str, int, RoleId], Newest] = {}  # as each reader knows it
        self._published: dict[tuple[str, int], int] = {}
        self._rounds: dict[tuple[str, int], int] = {}
        self._offers: dict[tuple[str, int], dict[int, Tree]] = {}

    def _start(self, role: RoleId, start: Start) -> None:
        actor = self.roles[role]
        actor.life += 1
        actor.alive, actor.effect, actor.first_at, actor.thawed_at = True, None, None, 0.0
        self._note(role, "starts")
        actor.code = self.program.role(role, start)
        self._plan_for(actor, 0.0, lambda: self._resume(actor, None))
        for kind, strike in (("crash", self._crash), ("freeze", self._freeze)):
            after = self.forecast.next_fault(role, kind)
            if after is not None:
                self._plan_for(actor, after, lambda strike=strike: strike(actor))  # type: ignore[misc]

    def _crash(self, actor: Actor) -> None:
        if actor.done:
            return
        self.crashes += 1
        self._note(actor.role, "crashes")
        self._end(actor)
        if not restarts_all(self.formation, actor.role):
            self._plan(self.weather.restart, lambda: self._start_again(actor))
            return
        for other in self.roles.values():
            self._end(other)
        self._clear()
        self._plan(self.weather.restart, self._start_all)

    def _end(self, actor: Actor) -> None:
        actor.alive = actor.done = False
        actor.life += 1
        if actor.code is not None:
            actor.code.close()
            actor.code = None

    def _start_again(self, actor: Actor) -> None:
        start = where_it_was(self.formation, actor.role, actor.life, self._wire, self._last_state(actor))
        self._start(actor.role, start)

    def _start_all(self) -> None:
        for role, actor in self.roles.items():
            self._start(role, Start(actor.life, restore=True, state=self._last_state(actor)))

    def _last_state(self, actor: Actor) -> Tree:
        """The state of its last checkpoint, or of the last that all have with which it is joined."""
        alike = [other for role, other in self.roles.items() if role.kind == actor.role.kind]
        together = alike if self.formation.joined(actor.role.kind) else [actor]
        last = max(set.intersection(*(set(each.saved) for each in together)), default=-1)
        actor.saved = {step: state for step, state in actor.saved.items() if step <= last}
        return actor.saved.get(last)

    def _freeze(self, actor: Actor) -> None:
        self.freezes += 1
        self._note(actor.role, "freezes")
        actor.thawed_at = self.now + self.weather.frozen
        after = self.forecast.next_fault(actor.role, "freeze")
        if after is not None:
            self._plan_for(actor, self.weather.frozen + after, lambda: self._freeze(actor))

    def _wire(self, edge: str, source: int, target: int) -> Wire:
        return self.wires[edge, source, target]

    # -- effects

    def _resume(self, actor: Actor, value: Any) -> None:
        """Let a role work up to its next effect, which it comes to when the work is done."""
        try:
            effect = actor.code.send(value)
        except StopIteration as stop:
            actor.done, actor.result, actor.effect = True, stop.value, None
            self._note(actor.role, "is done")
            for role in self.roles:  # it holds nobody up any more
                self._look_again(role)
            return
        self._plan_for(actor, self.forecast.work(actor.role, effect), lambda: self._issue(actor, effect))

    def _issue(self, actor: Actor, effect: Effect) -> None:
        if isinstance(effect, (Pulse, Report, Checkpoint)):
            self._note(actor.role, type(effect).__name__)
            if isinstance(effect, Checkpoint):
                state = effect.state()
                saved = {**actor.saved, effect.steps: state}
                actor.saved = {step: saved[step] for step in sorted(saved)[-2:]}
                effect = Checkpoint(effect.steps, lambda: state)
            self._resume(actor, outward(actor.role, effect, self.watcher))
        elif isinstance(effect, Sleep):
            self._plan_for(actor, effect.seconds, lambda: self._resume(actor, None))
        else:
            actor.effect = effect
            self._try(actor)

    def _try(self, actor: Actor) -> None:
        """Carry out what a role waits for, if that is possible now."""
        effect = actor.effect
        if effect is None or not actor.alive or self.now < actor.thawed_at:
            return
        result = self._attempt(actor, effect)
        if result is not WAIT:
            actor.effect = None
            self._note(actor.role, f"{type(effect).__name__} {edge_of(effect)}")
            self._resume(actor, result)

    def _look_again(self, role: RoleId) -> None:
        """Something happened that a role may have waited for."""
        actor = self.roles[role]
        if actor.effect is not None and actor.alive:
            self._plan_for(actor, 0.0, lambda: self._try(actor))

    def _attempt(self, actor: Actor, effect: Effect) -> Any:
        role = actor.role
        if isinstance(effect, Put):
            return self._put(role, effect)
        if isinstance(effect, Take):
            return self._take(actor, effect)
        if isinstance(effect, TakeMany):
            return self._take_many(actor, effect)
        if isinstance(effect, Publish):
            return self._publish(role, effect)
        if isinstance(effect, Latest):
            sender = sender_of(self.formation, self.formation.edge(effect.edge), role, effect.sender)
            newest = self._cells.get((effect.edge, sender, role))
            over = self.roles[RoleId(self.formation.edge(effect.edge).source, sender)].done
            return newest if newest is not None and (over or newest.number >= effect.after) else WAIT
        assert isinstance(effect, AllReduce)
        return self._reduce(role, effect)

    def _put(self, role: RoleId, effect: Put) -> Any:
        edge = self.formation.edge(effect.edge)
        target = receiver_of(self.formation, edge, role.index, effect.to)
        wire = self.wires[edge.name, role.index, target]
        if wire.full:
            return None if self.roles[RoleId(edge.target, target)].done else WAIT
        number, lane = wire.sent, (edge.name, role.index, target)
        wire.sent += 1
        delay = 0.0
        while self.forecast.lost(*lane):
            delay += self.weather.resend
        copies = 2 if self.forecast.lost(*lane) else 1  # its acknowledgement was lost: it is sent again

        def arrive() -> None:
            if self.wires.get(lane) is wire:
                wire.arrive(number, effect.item)
                self._look_again(RoleId(edge.target, target))

        for copy in range(copies):
            self._plan(delay + copy * self.weather.resend + self.forecast.latency(*lane), arrive)
        return None

    def _take_from(self, role: RoleId, edge: str, source: int) -> Message:
        item = self.wires[edge, source, role.index].take()
        self._look_again(RoleId(self.formation.edge(edge).source, source))
        return Message(edge, source, item)

    def _filled(self, role: RoleId, edges: tuple[str, ...], sender: int | None) -> list[tuple[str, int]]:
        return [
            (name, source)
            for name in edges
            for source in self.formation.sources(self.formation.edge(name), role.index)
            if (sender is None or source == sender) and self.wires[name, source, role.index].filled
        ]

    def _take(self, actor: Actor, effect: Take) -> Any:
        found = self._filled(actor.role, effect.edges, effect.sender)
        if not found:
            return WAIT
        actor.turn += 1
        return self._take_from(actor.role, *found[actor.turn % len(found)])

    def _take_many(self, actor: Actor, effect: TakeMany) -> Any:
        found = self._filled(actor.role, (effect.edge,), None)[: effect.most]
        if not found:
            return WAIT
        if actor.first_at is None:
            actor.first_at = self.now
            self._plan_for(actor, effect.seconds, lambda: self._try(actor))
        if len(found) < effect.most and self.now < actor.first_at + effect.seconds:
            return WAIT
        actor.first_at = None
        return [self._take_from(actor.role, *each) for each in found]

    def _publish(self, role: RoleId, effect: Publish) -> None:
        edge = self.formation.edge(effect.edge)
        number = self._published[edge.name, role.index] = self._published.get((edge.name, role.index), 0) + 1
        newest = Newest(effect.value, effect.version, number)
        cells = self._cells
        for kind in (edge.target, *edge.also):
            for i in range(self.formation.count(kind)):
                reader = RoleId(kind, i)

                def arrive(reader: RoleId = reader) -> None:
                    known = cells.get((edge.name, role.index, reader))
                    if cells is self._cells and (known is None or known.number < number):
                        cells[edge.name, role.index, reader] = newest
                        if isinstance(self.roles[reader].effect, Latest):
                            self._look_again(reader)

                self._plan(self.forecast.latency(edge.name, role.index, i), arrive)

    def _reduce(self, role: RoleId, effect: AllReduce) -> Any:
        turn = self._rounds.get((effect.edge, role.index), 0)
        offers = self._offers.setdefault((effect.edge, turn), {})
        members = self.formation.count(role.kind)
        if role.index not in offers:
            offers[role.index] = effect.value
            if len(offers) == members:
                for i in range(members):
                    self._look_again(RoleId(role.kind, i))
        if len(offers) < members:
            return WAIT
        self._rounds[effect.edge, role.index] = turn + 1
        if all(self._rounds.get((effect.edge, i), 0) > turn for i in range(members)):
            del self._offers[effect.edge, turn]
        return mean_of([offers[i] for i in range(members)])
