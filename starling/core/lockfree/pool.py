"""Queues that lead to one receiver: a pool of slots, and a lane for each sender.

The receiver owns the pool: ``depth`` slots for each sender, and ``loans`` that it may still read. Everything has one
writer, and one store makes a change visible, so either side may be killed at any instruction:

    sender     writes an item into a slot of its lane's stock that holds no item, notes the slot in the lane's order,
               and only then counts the item as sent. Before that the slot is as free as it was.
    receiver   puts another slot into the lane's stock in place of the one that holds the next item, and only then
               counts the item as taken. Before that the item is offered as it was.

What is neither in a stock nor holds an item that is still to be taken belongs to the receiver: one that begins again
needs to know no more.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from starling.core.lockfree.slots import Slots, fence, slot_fields
from starling.core.segments import Field, Segment, segment_size
from starling.core.trees import Tree

__all__ = ["NONE", "Pool", "SharedLane"]

ORDER, STOCK = "/order", "/stock"  # beside the leaves of messages, whose names have no slash
NONE = -1  # in a stock: no slot for now


class Pool:
    """The slots of one receiver for one queue, and a lane for each sender."""

    def __init__(
        self,
        name: str,
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
        self.slots = Slots(name, blank, self.segment)
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
        return [*slot_fields(blank, slots), *beside]

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
