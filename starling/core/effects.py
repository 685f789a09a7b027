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

from starling.core.trees import Tree

__all__ = [
    "AllReduce",
    "Checkpoint",
    "Effect",
    "Latest",
    "Message",
    "Newest",
    "Publish",
    "Pulse",
    "Put",
    "Report",
    "RoleCode",
    "Sleep",
    "Take",
    "TakeMany",
]


class Message(NamedTuple):
    """What came over a queue."""

    edge: str
    sender: int  # which of the roles at the edge's source
    item: Tree


class Newest(NamedTuple):
    """The newest value of a broadcast."""

    value: Tree
    version: int  # what its publisher calls it
    number: int  # how many values were published up to it, itself included


@dataclass(frozen=True, slots=True)
class Put:
    """Send an item; waits while the queue is full. ``to`` is needed where the edge leads to several receivers."""

    edge: str
    item: Tree
    to: int | None = None


@dataclass(frozen=True, slots=True)
class Take:
    """Receive the next Message from any of the edges, or from one sender alone; waits for one."""

    edges: tuple[str, ...]
    sender: int | None = None
    borrow: bool = False  # the item may lie in shared memory: it is good until the next one from its sender is taken
    why: str = ""  # why the role listens to these edges only, for whoever asks what it waits for


@dataclass(frozen=True, slots=True)
class TakeMany:
    """Receive up to ``most`` messages: waits for the first, then at most ``seconds`` for more."""

    edge: str
    most: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Publish:
    """Replace the value of a broadcast; never waits."""

    edge: str
    value: Tree
    version: int


@dataclass(frozen=True, slots=True)
class Latest:
    """The Newest value of a broadcast; waits until ``after`` values were published."""

    edge: str
    after: int = 1
    sender: int | None = None


@dataclass(frozen=True, slots=True)
class AllReduce:
    """The mean of what all members of a group offer, the same bits for each; waits for all."""

    edge: str
    value: Tree


@dataclass(frozen=True, slots=True)
class Pulse:
    """Tell how far the role is; the answer is whether it should stop now."""

    steps: int


@dataclass(frozen=True, slots=True)
class Report:
    """Metrics for the run's records."""

    steps: int
    values: dict[str, Any]
    histograms: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Make the role's state safe; ``state`` is called if the executor keeps one."""

    steps: int
    state: Callable[[], Tree]


@dataclass(frozen=True, slots=True)
class Sleep:
    """Do nothing for so long."""

    seconds: float


Effect = Put | Take | TakeMany | Publish | Latest | AllReduce | Pulse | Report | Checkpoint | Sleep
RoleCode = Generator[Effect, Any, Tree]
