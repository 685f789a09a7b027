"""Edges in shared memory, laid out from a blank message of each: the counterpart of ``mailroom`` across processes.

Every lane of a queue is a ring with one writer and one reader, every broadcast two slots that are written in turn.
Counters have one writer each; who waits says so on the board and is woken through a pipe.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from starling.core.effects import AllReduce, Effect, Latest, Message, Newest, Publish, Put, Take, TakeMany
from starling.core.errors import RunError
from starling.core.segments import Field, Segment
from starling.core.trees import Tree, items, refilled
from starling.executors.memory_edges import WAIT, mean_of, receiver_of, sender_of
from starling.formations import Edge, Formation, RoleId

__all__ = ["Broadcast", "Collective", "Ring", "SharedEdges", "make_segments", "name_of"]

HEAD, TAKEN = 0, 1  # of a ring: items put, items taken
ORDER = "/order"  # of a ring: which slot each item is in
NUMBER, WRITING = 0, 1  # of a broadcast: values published, and the one being written
VERSIONS = 2  # of a broadcast: the versions of its two slots
_lock = threading.Lock()


def fence() -> None:
    """Keep memory accesses before this point before those after it: taking a lock does."""
    with _lock:
        pass


def _fields(blank: Tree, slots: int) -> list[Field]:
    return [(path, (slots, *np.shape(leaf)), np.asarray(leaf).dtype.str) for path, leaf in items(blank)]


class _Slots:
    """Messages of one layout in a segment."""

    def __init__(self, blank: Tree, slots: int, descriptor: int | None, *beside: Field) -> None:
        self.blank, self.slots = blank, slots
        self.segment = Segment([*_fields(blank, slots), *beside], descriptor)
        self._arrays = [self.segment.arrays[path] for path, _ in items(blank)]
        self._paths = [path for path, _ in items(blank)]

    def write(self, slot: int, item: Tree, edge: str) -> None:
        """Copy a message into a slot. An array may be shorter than the layout's: then the rest is as it was."""
        for (path, leaf), name, array in zip(items(item), self._paths, self._arrays, strict=True):
            target, leaf = array[slot, ...], np.asarray(leaf)
            if path != name or leaf.shape[1:] != target.shape[1:] or leaf.ndim != target.ndim:
                raise RunError(f"{edge}: {path} {leaf.shape} was put, {name} {target.shape} was expected.")
            if leaf.ndim and len(leaf) != len(target):
                target = target[: len(leaf)]
            np.copyto(target, leaf, casting="same_kind")

    def read(self, slot: int, borrow: bool = False) -> Tree:
        return refilled(self.blank, [array[slot, ...] if borrow else array[slot, ...].copy() for array in self._arrays])


class Ring:
    """A queue between one writer and one reader, of ``depth`` items; the last ``loans`` taken may still be read.

    An item goes into the first slot that is free: where the reader keeps up, the same few are used again and again, and
    stay in the processor's cache.
    """

    def __init__(self, name: str, blank: Tree, depth: int, loans: int, descriptor: int | None = None) -> None:
        self.name, self.depth, self.loans = name, depth, loans
        self._count = depth + loans
        self._slots = _Slots(blank, self._count, descriptor, (ORDER, (self._count,), "<i8"))
        self.segment = self._slots.segment
        self._counters, self._order = self.segment.counters, self.segment.arrays[ORDER]

    def put(self, item: Tree) -> bool:
        """False where the ring is full."""
        counters, count = self._counters, self._count
        head, taken = int(counters[HEAD]), int(counters[TAKEN])
        if head - taken >= self.depth:
            return False
        used = {int(self._order[number % count]) for number in range(max(0, taken - self.loans), head)}
        slot = next(slot for slot in range(count) if slot not in used)
        self._slots.write(slot, item, self.name)
        self._order[head % count] = slot
        fence()
        counters[HEAD] = head + 1
        fence()
        return True

    def filled(self) -> bool:
        return bool(self._counters[HEAD] > self._counters[TAKEN])

    def take(self, borrow: bool) -> Tree:
        taken = int(self._counters[TAKEN])
        fence()
        item = self._slots.read(int(self._order[taken % self._count]), borrow)
        fence()
        self._counters[TAKEN] = taken + 1
        fence()
        return item

    @property
    def sent(self) -> int:
        return int(self._counters[HEAD])

    @property
    def taken(self) -> int:
        return int(self._counters[TAKEN])

    def rewind(self, items_back: int) -> None:
        """Offer the last taken items again, at most ``loans``; only for a reader that begins anew."""
        self._counters[TAKEN] -= items_back

    def reset(self) -> None:
        self._counters[:] = 0


class Broadcast:
    """The newest value of one publisher."""

    def __init__(self, name: str, blank: Tree, descriptor: int | None = None) -> None:
        self.name, self._slots = name, _Slots(blank, 2, descriptor)
        self.segment = self._slots.segment
        self._counters = self.segment.counters

    @property
    def number(self) -> int:
        return int(self._counters[NUMBER])

    def publish(self, value: Tree, version: int) -> None:
        number = self.number + 1
        self._counters[WRITING] = number
        fence()
        self._slots.write(number % 2, value, self.name)
        self._counters[VERSIONS + number % 2] = version
        fence()
        self._counters[NUMBER] = number
        fence()

    def newest(self) -> Newest:
        while True:
            number = self.number
            fence()
            value, version = self._slots.read(number % 2), int(self._counters[VERSIONS + number % 2])
            fence()
            if self._counters[WRITING] - number < 2:  # nobody wrote into the slot meanwhile
                return Newest(value, version, number)

    def reset(self) -> None:
        self._counters[:] = 0


class Collective:
    """What the members of a group offer, in two slots each that are used in turn."""

    def __init__(self, name: str, blank: Tree, members: int, descriptor: int | None = None) -> None:
        self.members, self.name = members, name
        self._slots = _Slots(blank, 2 * members, descriptor)
        self.segment = self._slots.segment
        self._rounds = self.segment.counters

    def offer(self, member: int, turn: int, value: Tree) -> None:
        self._slots.write(2 * member + turn % 2, value, self.name)
        fence()
        self._rounds[member] = turn + 1
        fence()

    def complete(self, turn: int) -> bool:
        return bool((self._rounds[: self.members] > turn).all())

    def mean(self, turn: int) -> Tree:
        fence()
        return mean_of([self._slots.read(2 * member + turn % 2, borrow=True) for member in range(self.members)])

    def reset(self) -> None:
        self._rounds[:] = 0


Part = Ring | Broadcast | Collective
Key = tuple[str, int, int]  # edge, source, target; −1 where there is none


def make_segments(
    formation: Formation, blanks: Mapping[str, Tree], descriptors: dict[str, int] | None = None
) -> dict[Key, Part]:
    """Every lane, broadcast and collective of a formation; or those behind ``descriptors``, where they are given."""
    parts: dict[Key, Part] = {}
    given = descriptors or {}

    def wanted(key: Key) -> bool:
        return descriptors is None or name_of(key) in given

    for edge in formation.edges:
        if edge.kind == "queue":
            for source, target in formation.lanes(edge):
                key = (edge.name, source, target)
                if not wanted(key):
                    continue
                blank = blanks.get(f"{edge.name}/{target}", blanks.get(edge.name))
                loans = len(formation.sources(edge, target))
                parts[key] = Ring(edge.name, blank, edge.depth, loans, given.get(name_of(key)))
        elif edge.kind == "broadcast":
            for source in range(formation.count(edge.source)):
                key = (edge.name, source, -1)
                if not wanted(key):
                    continue
                blank = blanks.get(f"{edge.name}/{source}", blanks.get(edge.name))
                parts[key] = Broadcast(edge.name, blank, given.get(name_of(key)))
        elif wanted(key := (edge.name, -1, -1)):
            parts[key] = Collective(edge.name, blanks[edge.name], formation.count(edge.source), given.get(name_of(key)))
    return parts


def name_of(key: Key) -> str:
    return f"{key[0]}/{key[1]}/{key[2]}"


class SharedEdges:
    """The edges as one role sees them. ``attempt`` never waits; ``woken`` lists who must be told of what it did."""

    def __init__(
        self, formation: Formation, role: RoleId, parts: dict[Key, Part], done: Callable[[RoleId], bool]
    ) -> None:
        """``done`` tells whether a role has come to its end: it holds nobody up any more."""
        self.formation, self.role, self._parts, self._done = formation, role, parts, done
        self.edges: dict[str, Edge] = {edge.name: edge for edge in formation.edges}
        self._turn = 0
        self._rounds: dict[str, int] = {}
        self._offered: set[str] = set()
        self._since: float | None = None  # when the first message of a TakeMany was there
        self._sources = {
            edge.name: [(i, self._ring(edge.name, i, role.index)) for i in formation.sources(edge, role.index)]
            for edge in formation.edges
            if edge.kind == "queue" and edge.target == role.kind
        }

    @property
    def gathering(self) -> bool:
        """Whether a TakeMany has something and waits for more."""
        return self._since is not None

    def attempt(self, effect: Effect) -> tuple[Any, list[RoleId]]:
        """The effect's result or WAIT, and the roles that may go on because of it."""
        if isinstance(effect, Put):
            return self._put(effect)
        if isinstance(effect, Take):
            return self._take(effect)
        if isinstance(effect, TakeMany):
            return self._take_many(effect)
        if isinstance(effect, Latest):
            return self._latest(effect), []
        if isinstance(effect, Publish):
            edge = self.edges[effect.edge]
            self._broadcast(effect.edge, self.role.index).publish(effect.value, effect.version)
            return None, [
                RoleId(kind, i) for kind in (edge.target, *edge.also) for i in range(self.formation.count(kind))
            ]
        if isinstance(effect, AllReduce):
            return self._reduce(effect)
        raise TypeError(f"{effect!r:.80} is not for the edges")

    def _ring(self, edge: str, source: int, target: int) -> Ring:
        part = self._parts[edge, source, target]
        assert isinstance(part, Ring)
        return part

    def _broadcast(self, edge: str, source: int) -> Broadcast:
        part = self._parts[edge, source, -1]
        assert isinstance(part, Broadcast)
        return part

    def _put(self, effect: Put) -> tuple[Any, list[RoleId]]:
        edge = self.edges[effect.edge]
        target = receiver_of(self.formation, edge, self.role.index, effect.to)
        if not self._ring(edge.name, self.role.index, target).put(effect.item):
            return (None if self._done(RoleId(edge.target, target)) else WAIT), []
        return None, [RoleId(edge.target, target)]

    def _take(self, effect: Take) -> tuple[Any, list[RoleId]]:
        lanes = [(name, source, ring) for name in effect.edges for source, ring in self._sources[name]]
        found = [lane for lane in lanes if (effect.sender is None or lane[1] == effect.sender) and lane[2].filled()]
        if not found:
            return WAIT, []
        name, source, ring = found[self._turn % len(found)]
        self._turn += 1
        return Message(name, source, ring.take(effect.borrow)), [RoleId(self.edges[name].source, source)]

    def _take_many(self, effect: TakeMany) -> tuple[Any, list[RoleId]]:
        found = [(source, ring) for source, ring in self._sources[effect.edge] if ring.filled()]
        if not found:
            return WAIT, []
        self._since = time.monotonic() if self._since is None else self._since
        if len(found) < effect.most and time.monotonic() - self._since < effect.seconds:
            return WAIT, []
        self._since = None
        source_kind = self.edges[effect.edge].source
        messages = [Message(effect.edge, source, ring.take(False)) for source, ring in found[: effect.most]]
        return messages, [RoleId(source_kind, message.sender) for message in messages]

    def _latest(self, effect: Latest) -> Any:
        sender = sender_of(self.formation, self.edges[effect.edge], self.role, effect.sender)
        broadcast = self._broadcast(effect.edge, sender)
        over = self._done(RoleId(self.edges[effect.edge].source, sender))
        return broadcast.newest() if broadcast.number >= (1 if over else max(1, effect.after)) else WAIT

    def _reduce(self, effect: AllReduce) -> tuple[Any, list[RoleId]]:
        collective = self._parts[effect.edge, -1, -1]
        assert isinstance(collective, Collective)
        turn = self._rounds.get(effect.edge, 0)
        others: list[RoleId] = []
        if effect.edge not in self._offered:
            collective.offer(self.role.index, turn, effect.value)
            self._offered.add(effect.edge)
            others = [RoleId(self.role.kind, i) for i in range(collective.members) if i != self.role.index]
        if not collective.complete(turn):
            return WAIT, others
        self._offered.discard(effect.edge)
        self._rounds[effect.edge] = turn + 1
        return collective.mean(turn), others
