"""Effects: what a role asks of whoever runs it.

A role is a generator. It never waits by itself: it yields an effect, and the executor carries it out and sends back
the result when there is one. So the same role runs in one thread, in a simulation, or in a process of its own, and
the executor always knows who waits for what.

    def actor(policy, collect):
        while True:
            newest = yield Latest("weights")
            policy.load(newest.value, newest.version)
            yield Put("experience", (yield from collect()))
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from starling.core.saveable import copied
from starling.core.trees import Tree

__all__ = [
    "AllReduce",
    "Call",
    "Checkpoint",
    "Effect",
    "Interrupted",
    "Latest",
    "Message",
    "Newest",
    "Publish",
    "Pulse",
    "Put",
    "Reply",
    "Report",
    "RoleCode",
    "Sleep",
    "Take",
    "TakeMany",
]


class Interrupted(Exception):
    """Thrown into a role that ends the run, where it waits while the run is to stop: what it waits for may never come.

    It may go on to its last effects; one that cannot be left where it waits lets it pass.
    """


class Message(NamedTuple):
    """What came over a queue."""

    edge: str
    sender: int  # which of the roles at the edge's source
    item: Tree


class Newest(NamedTuple):
    """The newest value of a broadcast."""

    value: Tree  # None where the reader said that it knows this one
    version: int  # what its publisher calls it
    number: int  # how many values were published up to it, itself included


@dataclass(frozen=True, slots=True)
class Put:
    """Send an item; waits while the queue is full. ``to`` is needed where the edge leads to several receivers.

    What was sent is the receiver's: it is not written again.
    """

    edge: str
    item: Tree
    to: int | None = None


@dataclass(frozen=True, slots=True)
class Take:
    """Receive the next Message from any of the edges, or from one sender alone; waits for one."""

    edges: tuple[str, ...]
    sender: int | None = None
    borrow: bool = False  # the item may lie in shared memory: good until ``loans`` more were taken from its edge
    why: str = ""  # why the role takes from these edges only, for whoever asks what it waits for


@dataclass(frozen=True, slots=True)
class TakeMany:
    """Receive up to ``most`` messages: waits for the first, then at most ``seconds`` for more."""

    edge: str
    most: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Call:
    """Send a request and wait for its answer, a Message over the edge that ``answers`` this one."""

    edge: str
    item: Tree
    to: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the oldest open request of ``to``; never waits."""

    edge: str
    item: Tree
    to: int


@dataclass(frozen=True, slots=True)
class Publish:
    """Replace the value of a broadcast; never waits.

    A value that is a function without arguments is a promise: it is called once, when the value is first read, or at
    once where readers are in other processes.
    """

    edge: str
    value: Tree | Callable[[], Tree]
    version: int


@dataclass(frozen=True, slots=True)
class Latest:
    """The Newest value of a broadcast; waits until ``after`` values were published.

    A reader that has value number ``known`` already gets it again without its content: nothing is copied.
    """

    edge: str
    after: int = 1
    sender: int | None = None
    known: int = 0


@dataclass(frozen=True, slots=True)
class AllReduce:
    """The weighted mean Σ wᵢ·vᵢ / Σ wᵢ of what all members of a group offer, the same bits for each; waits for all.

    Equal weights, zeros too, give the plain mean.
    """

    edge: str
    value: Tree
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Pulse:
    """Say how far the role is; the answer is whether it should stop now."""

    steps: int


@dataclass(frozen=True, slots=True)
class Report:
    """Metrics for the run's records."""

    steps: int
    values: dict[str, Any]
    histograms: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Make the role's state safe; ``live`` is called if the executor keeps one.

    Its ``Saveable`` leaves stay the role's own: they are written before the role goes on. ``state`` has copies of them.
    """

    steps: int
    live: Callable[[], Tree]

    def state(self) -> Tree:
        return copied(self.live())


@dataclass(frozen=True, slots=True)
class Sleep:
    """Do nothing for so long."""

    seconds: float


Effect = Put | Take | TakeMany | Call | Reply | Publish | Latest | AllReduce | Pulse | Report | Checkpoint | Sleep
RoleCode = Generator[Effect, Any, Tree]
