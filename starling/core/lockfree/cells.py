"""What is replaced and not queued: the newest value of one writer, and what the members of a group offer."""

from __future__ import annotations

from starling.core.effects import Newest
from starling.core.lockfree.slots import Slots, fence, slot_fields
from starling.core.segments import Field, Segment, segment_size
from starling.core.trees import Tree

__all__ = ["SharedCell", "SharedGroup"]

WEIGHTS = "/weights"  # beside the leaves of messages, whose names have no slash
NUMBER, WRITING, VERSIONS = 0, 1, 2  # of a cell: values published, the one being written, versions of its two slots


class SharedCell:
    """The newest value of one publisher, in two slots that are written in turn."""

    def __init__(self, name: str, blank: Tree, descriptor: int | None = None) -> None:
        self.segment = Segment(slot_fields(blank, 2), descriptor)
        self._slots, self._counters = Slots(name, blank, self.segment), self.segment.counters

    @staticmethod
    def size(blank: Tree) -> int:
        """Bytes that such a cell takes."""
        return segment_size(slot_fields(blank, 2))

    @property
    def number(self) -> int:
        """How many values were published."""
        return int(self._counters[NUMBER])

    def publish(self, value: Tree, version: int) -> None:
        number = self.number + 1
        self._counters[WRITING] = number
        fence()
        self._slots.write(number % 2, value)
        self._counters[VERSIONS + number % 2] = version
        fence()
        self._counters[NUMBER] = number
        fence()

    def newest(self, known: int) -> Newest:
        """The newest value; without its content where its number is ``known``."""
        while True:
            number = self.number
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

    def __init__(self, name: str, blank: Tree, members: int, descriptor: int | None = None) -> None:
        self.segment = Segment(self._layout(blank, members), descriptor, members)
        self._slots, self._weights = Slots(name, blank, self.segment), self.segment.arrays[WEIGHTS]
        self._rounds = self.segment.counters

    @staticmethod
    def _layout(blank: Tree, members: int) -> list[Field]:
        return [*slot_fields(blank, 2 * members), (WEIGHTS, (2 * members,), "<f8")]

    @classmethod
    def size(cls, blank: Tree, members: int) -> int:
        """Bytes that such a group takes."""
        return segment_size(cls._layout(blank, members), members)

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
