"""What lies between roles: the lanes of queues, the cells of broadcasts, the groups of collectives.

They know no role and no formation. Here they are in the memory of one process, where items are handed over as they are;
``lockfree`` has the same in shared memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from starling.core.effects import Newest
from starling.core.trees import Tree

__all__ = ["Arrive", "Cell", "Group", "Lane", "MemoryCell", "MemoryGroup", "MemoryLane"]

Arrive = Callable[[], None]


class Lane(Protocol):
    """A queue between two roles. Its items are numbered from 0."""

    def put(self, item: Tree) -> bool:
        """Send the item; False where the lane is full."""

    def filled(self) -> int:
        """How many items can be taken now."""

    def take(self, borrow: bool) -> Tree:
        """The next item; borrowed ones need not be copied."""

    def release(self) -> None:
        """The oldest request that was taken is answered: it need not be kept any longer."""

    def rewind(self, count: int) -> None:
        """Offer the last taken requests again, for a receiver that crashed before it had answered them."""

    @property
    def sent(self) -> int: ...

    @property
    def taken(self) -> int: ...


class Cell(Protocol):
    """The newest value of one publisher, as one reader sees it. Its values are numbered from 1; 0 is none."""

    @property
    def number(self) -> int: ...

    def newest(self, known: int) -> Newest:
        """The newest value; without its content where its number is ``known``."""


class Group(Protocol):
    """What the members of a collective offer, round by round."""

    def offer(self, member: int, turn: int, value: Tree, weight: float) -> None: ...

    def complete(self, turn: int) -> bool: ...

    def read(self, turn: int) -> list[tuple[Tree, float]]:
        """What all members offered, in their order."""


class MemoryLane:
    """Sent in order, perhaps out of order on the way, taken in order."""

    def __init__(self, depth: int, keeps: bool, carry: Callable[[Arrive], None]) -> None:
        """``keeps`` items that were taken until they are released."""
        self.depth, self.sent, self.taken, self.doubled = depth, 0, 0, 0
        self._keeps, self._carry, self._released = keeps, carry, 0
        self._arrived: dict[int, Tree] = {}  # by number

    def put(self, item: Tree) -> bool:
        if self.sent - self.taken >= self.depth:
            return False
        self.sent += 1
        self._carry(partial(self.arrive, self.sent - 1, item))
        return True

    def arrive(self, number: int, item: Tree) -> None:
        if number < self.taken or number in self._arrived:
            self.doubled += 1
        else:
            self._arrived[number] = item

    def filled(self) -> int:
        number = self.taken
        while number in self._arrived:
            number += 1
        return number - self.taken

    def take(self, borrow: bool) -> Tree:
        item = self._arrived[self.taken] if self._keeps else self._arrived.pop(self.taken)
        self.taken += 1
        return item

    def release(self) -> None:
        self._arrived.pop(self._released, None)
        self._released += 1

    def rewind(self, count: int) -> None:
        self.taken -= count


class MemoryCell:
    """The newest value that has arrived at one reader."""

    def __init__(self) -> None:
        self._newest = Newest(None, 0, 0)

    @property
    def number(self) -> int:
        return self._newest.number

    def arrive(self, newest: Newest) -> None:
        if newest.number > self.number:
            self._newest = newest

    def newest(self, known: int) -> Newest:
        value = None if self.number == known else self._newest.value
        return self._newest._replace(value=value() if callable(value) else value)


class MemoryGroup:
    """The offers of two rounds: nobody begins a third before all have read the first."""

    def __init__(self, members: int) -> None:
        self._rounds = [0] * members
        self._offers: list[list[tuple[Tree, float]]] = [[(None, 0.0)] * members for _ in range(2)]

    def offer(self, member: int, turn: int, value: Tree, weight: float) -> None:
        self._offers[turn % 2][member] = (value, weight)
        self._rounds[member] = turn + 1

    def complete(self, turn: int) -> bool:
        return all(reached > turn for reached in self._rounds)

    def read(self, turn: int) -> list[tuple[Tree, float]]:
        return self._offers[turn % 2]
