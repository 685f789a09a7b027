"""Edges in shared memory, laid out from a blank message of each.

A receiver owns one pool of slots for each queue that leads to it: ``depth`` for each sender, and ``loans`` that it may
still read. Everything has one writer, and one store makes a change visible, so either side may be killed at any
instruction:

    sender     writes an item into a slot of its lane's stock that holds no item, notes the slot in the lane's order,
               and only then counts the item as sent. Before that the slot is as free as it was.
    receiver   puts another slot into the lane's stock in place of the one that holds the next item, and only then
               counts the item as taken. Before that the item is offered as it was.

What is neither in a stock nor holds an item that is still to be taken belongs to the receiver: one that begins again
needs to know no more.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from starling.core.effects import Newest
from starling.core.errors import RunError
from starling.core.segments import Field, Segment, segment_size
from starling.core.trees import Tree, items, refilled
from starling.executors.edges import Promise, resolved
from starling.formations import Edge, Formation, RoleId

__all__ = ["Pool", "SharedCell", "SharedEdges", "SharedGroup", "SharedLane"]

ORDER, STOCK, WEIGHTS = "/order", "/stock", "/weights"  # beside the leaves of messages, whose names have no slash
NONE = -1  # in a stock: no slot for now
NUMBER, WRITING, VERSIONS = 0, 1, 2  # of a cell: values published, the one being written, versions of its two slots
_lock = threading.Lock()


def fence() -> None:
    """Keep memory accesses before this point before those after it: taking a lock does."""
    with _lock:
        pass


def _fields(blank: Tree, slots: int) -> list[Field]:
    return [(path, (slots, *np.shape(leaf)), np.asarray(leaf).dtype.str) for path, leaf in items(blank)]


class _Slots:
    """Messages of one layout in a segment."""

    def __init__(self, edge: str, blank: Tree, segment: Segment) -> None:
        self._edge, self._blank = edge, blank
        self._paths = [path for path, _ in items(blank)]
        self._arrays = [segment.arrays[path] for path in self._paths]

    def write(self, slot: int, item: Tree) -> None:
        """Copy a message into a slot. An array may be shorter than the layout's: then the rest is as it was."""
        for (path, leaf), name, array in zip(items(item), self._paths, self._arrays, strict=True):
            target, leaf = array[slot, ...], np.asarray(leaf)
            if path != name or leaf.shape[1:] != target.shape[1:] or leaf.ndim != target.ndim:
                raise RunError(f"{self._edge}: {path} {leaf.shape} was put, {name} {target.shape} was expected.")
            if leaf.ndim and len(leaf) != len(target):
                target = target[: len(leaf)]
            np.copyto(target, leaf, casting="same_kind")

    def read(self, slot: int, borrow: bool = False) -> Tree:
        views = (array[slot, ...] for array in self._arrays)
        return refilled(self._blank, [view if borrow else view.copy() for view in views])


class Pool:
    """The slots of one receiver for one queue, and a lane for each sender."""

    def __init__(
        self,
        edge: str,
        blank: Tree,
        senders: list[int],
        depth: int,
        loans: int = 0,
        keeps: bool = False,
        descriptor: int | None = None,
    ) -> None:
        """``loans`` taken items may still be read (0: one per sender). A pool that ``keeps`` requests holds them until
        they are released, so that they can be offered again."""
        self.depth, self.loans, self.keeps = depth, loans or len(senders), keeps
        self.segment = Segment(self._layout(blank, len(senders), depth, loans, keeps), descriptor, 2 * len(senders))
        self.slots = _Slots(edge, blank, self.segment)
        self.stock, self.order = self.segment.arrays[STOCK], self.segment.arrays[ORDER]
        self.lanes = {sender: SharedLane(self, row) for row, sender in enumerate(senders)}
        if descriptor is None:
            self.reset()
        self.receiver: _Receiver | None = None

    @classmethod
    def _layout(cls, blank: Tree, senders: int, depth: int, loans: int, keeps: bool) -> list[Field]:
        slots = depth * senders + (loans or senders)
        noted = slots if keeps else depth  # items of a lane whose slots must be known
        beside: list[Field] = [(STOCK, (senders, depth), "<i4"), (ORDER, (senders, noted), "<i4")]
        return [*_fields(blank, slots), *beside]

    @classmethod
    def size(cls, blank: Tree, senders: int, depth: int, loans: int = 0, keeps: bool = False) -> int:
        """Bytes that such a pool takes."""
        return segment_size(cls._layout(blank, senders, depth, loans, keeps), 2 * senders)

    def reset(self) -> None:
        """Empty every lane, while neither side runs."""
        self.segment.counters[:] = 0
        self.stock[:] = np.arange(self.stock.size).reshape(self.stock.shape)
        self.receiver = None

    def taking(self) -> _Receiver:
        """The receiver's side, from the first time that it takes."""
        if self.receiver is None:
            self.receiver = _Receiver(self)
        return self.receiver


class _Receiver:
    """What the receiver of a pool does with the slots that belong to no lane; it alone knows, and may forget."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        waiting = {slot for lane in pool.lanes.values() for slot in lane.waiting()}
        count = pool.depth * len(pool.lanes) + pool.loans
        self._spare = [slot for slot in range(count) if slot not in waiting and slot not in pool.stock]  # warmest last
        self._stock: list[list[int]] = pool.stock.tolist()  # as it is in the pool
        self._short = [(int(row), int(place)) for row, place in np.argwhere(pool.stock == NONE)]  # a slot is missing
        self._holds = [0] * count  # how many reasons there are not to give a slot away
        self._loans: deque[tuple[int, int]] = deque()  # the take that ends each, and its slot
        self._kept: list[deque[int]] = [deque() for _ in pool.lanes]  # requests that are not answered
        self._takes = 0
        self._supply()

    def replace(self, row: int, slot: int) -> None:
        """Give a lane another slot for the one that is being taken, or none where all are held."""
        self._takes += 1
        while self._loans and self._loans[0][0] <= self._takes:
            self._let_go(self._loans.popleft()[1])
        if slot not in self._stock[row]:
            return  # the item was offered again: the lane has another slot already
        self._give(row, self._stock[row].index(slot), self._spare.pop() if self._spare else NONE)

    def hold(self, row: int, slot: int, borrow: bool) -> None:
        """Keep a slot whose item has been taken for as long as there are reasons to."""
        self._holds[slot] = 1
        if borrow:
            self._holds[slot] += 1
            self._loans.append((self._takes + self._pool.loans, slot))
        if self._pool.keeps:
            self._holds[slot] += 1
            self._kept[row].append(slot)
        self._let_go(slot)

    def release(self, row: int) -> None:
        """The oldest request of a lane is answered."""
        if self._kept[row]:
            self._let_go(self._kept[row].popleft())

    def _let_go(self, slot: int) -> None:
        self._holds[slot] -= 1
        if not self._holds[slot]:
            self._spare.append(slot)
            self._supply()

    def _supply(self) -> None:
        while self._spare and self._short:
            self._give(*self._short.pop(), self._spare.pop())

    def _give(self, row: int, place: int, slot: int) -> None:
        self._stock[row][place] = self._pool.stock[row, place] = slot
        if slot == NONE:
            self._short.append((row, place))


class SharedLane:
    """The queue of one sender within a receiver's pool."""

    def __init__(self, pool: Pool, row: int) -> None:
        self._pool, self._row = pool, row
        self._head, self._taken = pool.segment.counters[2 * row : 2 * row + 1], pool.segment.counters[2 * row + 1 :][:1]
        self._stock, self._order = pool.stock[row], pool.order[row]
        self.depth = pool.depth

    @property
    def sent(self) -> int:
        return self._head.item()

    @property
    def taken(self) -> int:
        return self._taken.item()

    def put(self, item: Tree) -> bool:
        head, taken = self.sent, self.taken
        fence()
        if head - taken >= self.depth:
            return False
        used = (NONE, *self._slots_of(taken, head))
        free = [slot for slot in self._stock.tolist() if slot not in used]
        if not free:
            return False
        self._pool.slots.write(free[0], item)
        self._order[head % len(self._order)] = free[0]
        fence()
        self._head[0] = head + 1
        fence()
        return True

    def filled(self) -> int:
        return self.sent - self.taken

    def take(self, borrow: bool) -> Tree:
        receiver, number = self._pool.taking(), self.taken
        fence()
        (slot,) = self._slots_of(number, number + 1)
        item = self._pool.slots.read(slot, borrow)
        receiver.replace(self._row, slot)
        fence()
        self._taken[0] = number + 1
        fence()
        receiver.hold(self._row, slot, borrow)
        return item

    def release(self) -> None:
        self._pool.taking().release(self._row)

    def rewind(self, count: int) -> None:
        self._taken[0] -= count
        self._pool.receiver = None

    def waiting(self) -> list[int]:
        """The slots of items that are still to be taken."""
        return self._slots_of(self.taken, self.sent)

    def _slots_of(self, first: int, end: int) -> list[int]:
        return [self._order.item(number % len(self._order)) for number in range(first, end)]


class SharedCell:
    """The newest value of one publisher, in two slots that are written in turn."""

    def __init__(self, edge: str, blank: Tree, descriptor: int | None = None) -> None:
        self.segment = Segment(_fields(blank, 2), descriptor)
        self._slots, self._counters = _Slots(edge, blank, self.segment), self.segment.counters

    @property
    def published(self) -> int:
        return int(self._counters[NUMBER])

    def publish(self, value: Tree | Promise, version: int) -> None:
        value, number = resolved(value), self.published + 1
        self._counters[WRITING] = number
        fence()
        self._slots.write(number % 2, value)
        self._counters[VERSIONS + number % 2] = version
        fence()
        self._counters[NUMBER] = number
        fence()

    def number(self, reader: RoleId) -> int:
        return self.published

    def newest(self, reader: RoleId, known: int) -> Newest:
        while True:
            number = self.published
            fence()
            value = None if number == known else self._slots.read(number % 2)
            version = int(self._counters[VERSIONS + number % 2])
            fence()
            if self._counters[WRITING] - number < 2:  # nobody wrote into the slot meanwhile
                return Newest(value, version, number)

    def reset(self) -> None:
        self._counters[:] = 0


class SharedGroup:
    """What the members of a collective offer, in two slots each that are written in turn."""

    def __init__(self, edge: str, blank: Tree, members: int, descriptor: int | None = None) -> None:
        fields = [*_fields(blank, 2 * members), (WEIGHTS, (2 * members,), "<f8")]
        self.segment = Segment(fields, descriptor, members)
        self._slots, self._weights = _Slots(edge, blank, self.segment), self.segment.arrays[WEIGHTS]
        self._rounds = self.segment.counters

    def offer(self, member: int, turn: int, value: Tree, weight: float) -> None:
        slot = 2 * member + turn % 2
        self._slots.write(slot, value)
        self._weights[slot] = weight
        fence()
        self._rounds[member] = turn + 1
        fence()

    def complete(self, turn: int) -> bool:
        return bool((self._rounds > turn).all())

    def read(self, turn: int) -> list[tuple[Tree, float]]:
        fence()
        slots = range(turn % 2, len(self._weights), 2)
        return [(self._slots.read(slot, borrow=True), float(self._weights[slot])) for slot in slots]

    def reset(self) -> None:
        self._rounds[:] = 0


Part = Pool | SharedCell | SharedGroup


class SharedEdges:
    """All edges of a formation, or those of one role, where it is given their descriptors."""

    def __init__(
        self, formation: Formation, blanks: Mapping[str, Tree], descriptors: Mapping[str, int] | None = None
    ) -> None:
        self.formation = formation
        self._parts: dict[str, Part] = {}
        answered = {edge.answers for edge in formation.edges}
        for edge in formation.edges:
            for index in self._indices(edge):
                name = f"{edge.name}/{index}"
                if descriptors is None or name in descriptors:
                    blank, given = blanks.get(name, blanks.get(edge.name)), (descriptors or {}).get(name)
                    self._parts[name] = self._make(edge, index, blank, edge.name in answered, given)

    def _indices(self, edge: Edge) -> range:
        """A queue has a pool for each receiver, a broadcast a cell for each publisher, a collective one group."""
        if edge.kind == "collective":
            return range(1)
        return range(self.formation.count(edge.target if edge.kind == "queue" else edge.source))

    def _make(self, edge: Edge, index: int, blank: Tree, keeps: bool, descriptor: int | None) -> Part:
        if edge.kind == "queue":
            senders = self.formation.sources(edge, index)
            return Pool(edge.name, blank, senders, edge.depth, edge.loans, keeps, descriptor)
        if edge.kind == "broadcast":
            return SharedCell(edge.name, blank, descriptor)
        return SharedGroup(edge.name, blank, self.formation.count(edge.source), descriptor)

    def lane(self, edge: str, source: int, target: int) -> SharedLane:
        pool = self._parts[f"{edge}/{target}"]
        assert isinstance(pool, Pool)
        return pool.lanes[source]

    def cell(self, edge: str, source: int) -> SharedCell:
        cell = self._parts[f"{edge}/{source}"]
        assert isinstance(cell, SharedCell)
        return cell

    def group(self, edge: str) -> SharedGroup:
        group = self._parts[f"{edge}/0"]
        assert isinstance(group, SharedGroup)
        return group

    def descriptors(self, role: RoleId) -> dict[str, int]:
        """Of the parts that a role has anything to do with."""
        return {
            f"{edge.name}/{index}": self._parts[f"{edge.name}/{index}"].segment.descriptor
            for edge in self.formation.edges
            for index in self._indices(edge)
            if self._touches(role, edge, index)
        }

    def _touches(self, role: RoleId, edge: Edge, index: int) -> bool:
        if edge.kind == "queue":
            sends = role.kind == edge.source and role.index in self.formation.sources(edge, index)
            return sends or role == RoleId(edge.target, index)
        if edge.kind == "broadcast":
            return role == RoleId(edge.source, index) or role.kind in (edge.target, *edge.also)
        return role.kind == edge.source

    def status(self) -> list[dict[str, Any]]:
        """What every edge holds."""
        found: list[dict[str, Any]] = []
        for edge in self.formation.edges:
            about: dict[str, Any] = {"edge": edge.name, "kind": edge.kind}
            if edge.kind == "collective":
                found.append({**about, "from": edge.source})
            elif edge.kind == "broadcast":
                for source in self._indices(edge):
                    published = {"to": edge.target, "published": self.cell(edge.name, source).published}
                    found.append({**about, "from": f"{edge.source}-{source}", **published})
            else:
                for source, target in self.formation.lanes(edge):
                    lane = self.lane(edge.name, source, target)
                    held = {"sent": lane.sent, "held": lane.filled(), "depth": lane.depth}
                    ends = {"from": f"{edge.source}-{source}", "to": f"{edge.target}-{target}"}
                    found.append({**about, **ends, **held})
        return found

    def reset(self) -> None:
        """Empty every edge, while no role runs."""
        for part in self._parts.values():
            part.reset()

    def close(self) -> None:
        for part in self._parts.values():
            part.segment.close()
