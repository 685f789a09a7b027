"""What every effect on an edge means, written once: done with this result, or WAIT.

Executors differ in where items lie (``Storage``) and in how time passes (``clock``). Who sends to whom, whose turn it
is among several senders, how long to gather, what a role that is done means to others: all of that is here.

    edges = Edges(formation, MemoryEdges(formation), clock, done, wake)
    while (result := edges.attempt(role, effect)) is WAIT:
        ...  # until ``wake`` names the role, or ``edges.deadline(role)`` is over
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Protocol

from starling.core.effects import AllReduce, Call, Effect, Latest, Message, Publish, Put, Reply, Sleep, Take, TakeMany
from starling.core.errors import ConfigError, RunError
from starling.core.lanes import Cell, Group, Lane
from starling.core.trees import Tree
from starling.formations import Edge, Formation, RoleId, publisher_of, readers_of
from starling.maths.averaging import weighted_mean

__all__ = ["WAIT", "Edges", "Promise", "Storage"]

WAIT: Final = object()
Promise = Callable[[], Tree]  # a value that is computed when it is first read, once


class Storage(Protocol):
    """All edges of a formation, or those of one role."""

    def lane(self, edge: str, source: int, target: int) -> Lane: ...

    def publish(self, edge: str, source: int, value: Tree | Promise, version: int) -> None: ...

    def cell(self, edge: str, source: int, reader: RoleId) -> Cell: ...

    def group(self, edge: str) -> Group: ...


@dataclass
class _Progress:
    """How far a role is: across its effects, and within the one that it waits in."""

    lanes: list[tuple[str, int, Lane]]  # that lead to it
    last: int = -1  # the lane it took from last: the next one comes first
    rounds: dict[str, int] = field(default_factory=dict)  # collectives that it took part in
    first: dict[tuple[str, int], int] = field(default_factory=dict)  # the number of its first request to each server
    deadline: float | None = None  # when it has waited long enough
    begun: bool = False  # what it does once: it has checked its senders, offered its value, asked the server


class Edges:
    """The edges of a formation, for one or more of its roles."""

    def __init__(
        self,
        formation: Formation,
        storage: Storage,
        clock: Callable[[], float],
        done: Callable[[RoleId], bool],
        wake: Callable[[RoleId, str], None] = lambda role, edge: None,
    ) -> None:
        """``done`` says whether a role has ended: it holds nobody up. ``wake`` is called with each role that may go on
        because something happened on an edge."""
        self.formation, self._storage, self._clock, self._done, self._wake = formation, storage, clock, done, wake
        self._answering = {edge.answers: edge for edge in formation.edges if edge.answers}
        self._roles: dict[RoleId, _Progress] = {}
        self._targets = cache(formation.targets)
        self._readers = {edge.name: readers_of(formation, edge) for edge in formation.edges if edge.kind == "broadcast"}
        self._rules: dict[type, Callable[[RoleId, Any], Any]] = {
            Put: self._put,
            Take: self._take,
            TakeMany: self._take_many,
            Call: self._call,
            Reply: self._reply,
            Publish: self._publish,
            Latest: self._latest,
            AllReduce: self._all_reduce,
            Sleep: self._sleep,
        }

    def attempt(self, role: RoleId, effect: Effect) -> Any:
        """The effect's result, or WAIT; then the same effect is to be attempted again."""
        rule = self._rules.get(type(effect))
        if rule is None:
            raise TypeError(f"{role} yields {effect!r:.80}, which is no effect; see starling.core.effects.")
        result = rule(role, effect)
        if result is not WAIT:
            progress = self._progress(role)
            progress.deadline, progress.begun = None, False
        return result

    def deadline(self, role: RoleId) -> float | None:
        """When a role that waits may go on even if nothing happens."""
        return self._progress(role).deadline

    def restart(self, role: RoleId) -> None:
        """A role begins again."""
        self._roles.pop(role, None)

    def _progress(self, role: RoleId) -> _Progress:
        if role not in self._roles:
            queues = [edge for edge in self.formation.edges if edge.kind == "queue" and edge.target == role.kind]
            pairs = [(edge.name, source) for edge in queues for source in self.formation.sources(edge, role.index)]
            lanes = [(name, source, self._storage.lane(name, source, role.index)) for name, source in pairs]
            self._roles[role] = _Progress(lanes)
        return self._roles[role]

    def _edge_from(self, role: RoleId, name: str) -> Edge:
        edge = self.formation.edge(name)
        if edge.source != role.kind:
            raise ConfigError(f"{role} sends over {name!r}; only roles of the kind {edge.source} do.")
        return edge

    # -- queues

    def _receiver(self, edge: Edge, role: RoleId, to: int | None) -> int:
        targets = self._targets(edge, role.index)
        if to is None and len(targets) == 1:
            return targets[0]
        if to not in targets:
            raise ConfigError(f"{role} sends over {edge.name!r} to {to}; it leads to {targets}: name one of them.")
        return to

    def _put(self, role: RoleId, effect: Put) -> Any:
        edge = self._edge_from(role, effect.edge)
        target = self._receiver(edge, role, effect.to)
        return None if self._send(role, edge, target, effect.item) else WAIT

    def _send(self, role: RoleId, edge: Edge, target: int, item: Tree) -> bool:
        """False where the lane is full; what is sent to a role that is done may go nowhere."""
        lane, receiver = self._storage.lane(edge.name, role.index, target), RoleId(edge.target, target)
        if edge.name in self._answering:
            self._progress(role).first.setdefault((edge.name, target), lane.sent)
        requests = self._storage.lane(edge.answers, target, role.index) if edge.answers else None
        if requests is not None and requests.taken <= lane.sent:
            raise RunError(f"{role} answers {receiver} over {edge.name!r}, which has no open request; take one first.")
        if lane.put(item):
            self._wake(receiver, edge.name)
        elif not self._done(receiver):
            return False
        if requests is not None:
            requests.release()
        return True

    def _reply(self, role: RoleId, effect: Reply) -> None:
        edge = self._edge_from(role, effect.edge)
        if not edge.answers:
            raise ConfigError(f"{role} replies over {edge.name!r}, which answers no edge; use Put.")
        if not self._send(role, edge, self._receiver(edge, role, effect.to), effect.item):
            raise RunError(
                f"{role} replies to {edge.target}-{effect.to} over {edge.name!r}, which is full (depth {edge.depth}); "
                "a role may have no more requests open than answers fit: raise the depth."
            )

    def _take(self, role: RoleId, effect: Take) -> Any:
        progress = self._progress(role)
        place = self._next_filled(progress, effect.edges, effect.sender)
        if place is None:
            self._check_leads_here(role, effect.edges, effect.sender)
            return WAIT
        return self._take_from(progress, place, effect.borrow)

    def _take_many(self, role: RoleId, effect: TakeMany) -> Any:
        progress = self._progress(role)
        waiting = sum(lane.filled() for name, _, lane in progress.lanes if name == effect.edge)
        if not waiting:
            self._check_leads_here(role, (effect.edge,), None)
            return WAIT
        if waiting < effect.most and not self._is_over(progress, effect.seconds):
            return WAIT
        messages: list[Message] = []
        while len(messages) < min(waiting, effect.most):
            place = self._next_filled(progress, (effect.edge,), None)
            assert place is not None
            messages.append(self._take_from(progress, place, False))
        return messages

    def _next_filled(self, progress: _Progress, edges: tuple[str, ...], sender: int | None) -> int | None:
        """The place of the lane to take from: the first that has something, after the one that had its turn last."""
        count = len(progress.lanes)
        for step in range(1, count + 1):
            place = (progress.last + step) % count
            name, source, lane = progress.lanes[place]
            if name in edges and (sender is None or source == sender) and lane.filled():
                return place
        return None

    def _take_from(self, progress: _Progress, place: int, borrow: bool) -> Message:
        name, source, lane = progress.lanes[place]
        progress.last = place
        message = Message(name, source, lane.take(borrow))
        self._wake(RoleId(self.formation.edge(name).source, source), name)
        return message

    def _check_leads_here(self, role: RoleId, edges: tuple[str, ...], sender: int | None) -> None:
        """Refuse to wait for what cannot come."""
        progress = self._progress(role)
        if progress.begun:
            return
        for edge in edges:
            senders = [source for name, source, _ in progress.lanes if name == edge]
            if not senders or (sender is not None and sender not in senders):
                whose = "" if sender is None else f" of sender {sender}"
                raise ConfigError(f"{role} takes from {edge!r}{whose}; it has senders {senders}: name an edge to it.")
        progress.begun = True

    def _call(self, role: RoleId, effect: Call) -> Any:
        edge = self._edge_from(role, effect.edge)
        if edge.name not in self._answering:
            raise ConfigError(f"{role} calls over {edge.name!r}, which no edge answers; use Put.")
        target, progress = self._receiver(edge, role, effect.to), self._progress(role)
        requests, answering = self._storage.lane(edge.name, role.index, target), self._answering[edge.name]
        place = next(i for i, lane in enumerate(progress.lanes) if lane[:2] == (answering.name, target))
        answers = progress.lanes[place][2]
        if not progress.begun:
            first = progress.first.setdefault((edge.name, target), requests.sent)
            while answers.taken < first and answers.filled():  # to requests from before a crash
                self._take_from(progress, place, False)
            if answers.taken < first:
                return WAIT
            if answers.taken < requests.sent:
                raise RunError(
                    f"{role} calls {edge.target}-{target} over {edge.name!r} with {requests.sent - answers.taken} "
                    f"requests open; take their answers from {answering.name!r} first."
                )
            if not self._send(role, edge, target, effect.item):
                return WAIT
            progress.begun = True
        return self._take_from(progress, place, False) if answers.filled() else WAIT

    # -- broadcasts

    def _publish(self, role: RoleId, effect: Publish) -> None:
        edge = self._edge_from(role, effect.edge)
        value = cache(effect.value) if callable(effect.value) else effect.value
        self._storage.publish(edge.name, role.index, value, effect.version)
        for reader in self._readers[edge.name]:
            self._wake(reader, edge.name)

    def _latest(self, role: RoleId, effect: Latest) -> Any:
        edge = self.formation.edge(effect.edge)
        sender = publisher_of(self.formation, role, effect)
        cell = self._storage.cell(edge.name, sender, role)
        wanted = 1 if self._done(RoleId(edge.source, sender)) else max(1, effect.after)
        return cell.newest(effect.known) if cell.number >= wanted else WAIT

    # -- collectives

    def _all_reduce(self, role: RoleId, effect: AllReduce) -> Any:
        edge, progress = self._edge_from(role, effect.edge), self._progress(role)
        if not (math.isfinite(effect.weight) and effect.weight >= 0):
            raise ConfigError(f"{role}: weight={effect.weight} for {edge.name!r}; it must be finite and at least 0.")
        group, turn = self._storage.group(edge.name), progress.rounds.get(edge.name, 0)
        if not progress.begun:
            group.offer(role.index, turn, effect.value, effect.weight)
            progress.begun = True
            for member in range(self.formation.count(edge.source)):
                if member != role.index:
                    self._wake(RoleId(edge.source, member), edge.name)
        if not group.complete(turn):
            return WAIT
        progress.rounds[edge.name] = turn + 1
        return weighted_mean(group.read(turn))

    # -- time

    def _sleep(self, role: RoleId, effect: Sleep) -> Any:
        return None if self._is_over(self._progress(role), effect.seconds) else WAIT

    def _is_over(self, progress: _Progress, seconds: float) -> bool:
        """Whether so many seconds have passed since this was first asked."""
        now = self._clock()
        if progress.deadline is None:
            progress.deadline = now + seconds
        return now >= progress.deadline
