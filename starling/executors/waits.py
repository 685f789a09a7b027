"""What a role waits for: as fields for programs, as text for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starling.core.effects import AllReduce, Call, Effect, Latest, Put, Sleep, Take, TakeMany

__all__ = ["KINDS", "Wait", "wait_of"]

KINDS = ("", "put", "take", "take_many", "call", "latest", "all_reduce", "sleep")


@dataclass(frozen=True)
class Wait:
    """An effect that a role waits in; without one it works."""

    effect: str = ""  # one of KINDS
    edges: tuple[str, ...] = ()
    sender: int | None = None  # from whom alone it takes or reads
    receiver: int | None = None  # to whom it sends
    wanted: int | None = None  # messages that it gathers, values that must have been published
    seconds: float | None = None  # that it gathers or sleeps for at most
    reason: str = ""

    @property
    def edge(self) -> str | None:
        """The edge that the wait is counted for."""
        return self.edges[0] if self.edges else None

    def to_mapping(self) -> dict[str, Any]:
        """As plain values, for a status."""
        return {**vars(self), "edges": list(self.edges)}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Wait:
        """The wait that ``to_mapping`` wrote down."""
        return cls(**{**mapping, "edges": tuple(mapping["edges"])})

    def __str__(self) -> str:
        return self.text_for(1)

    def text_for(self, roles: int) -> str:
        """In words, of one role or of several that wait for the same."""
        edges, s = " or ".join(map(repr, self.edges)), "s" if roles == 1 else ""
        match self.effect:
            case "put":
                return f"wait{s} to put on {edges}, which is full"
            case "take" | "take_many":
                whose = "" if self.sender is None else f" from sender {self.sender}"
                return f"wait{s} for {edges}{whose}{f' ({self.reason})' if self.reason else ''}"
            case "call":
                return f"wait{s} for the answer to {'its request' if roles == 1 else 'their requests'} on {edges}"
            case "latest":
                return f"wait{s} for value {self.wanted} of {edges}"
            case "all_reduce":
                return f"wait{s} for the others of {edges}"
            case "sleep":
                return f"sleep{s} for {self.seconds:g} s"
        return f"work{s}"


def wait_of(effect: Effect | None) -> Wait:
    """What a role that is in this effect waits for."""
    match effect:
        case Put(edge=edge, to=to):
            return Wait("put", (edge,), receiver=to)
        case Take(edges=edges, sender=sender, why=why):
            return Wait("take", edges, sender, reason=why)
        case TakeMany(edge=edge, most=most, seconds=seconds):
            return Wait("take_many", (edge,), wanted=most, seconds=seconds)
        case Call(edge=edge, to=to):
            return Wait("call", (edge,), receiver=to)
        case Latest(edge=edge, after=after, sender=sender):
            return Wait("latest", (edge,), sender, wanted=after)
        case AllReduce(edge=edge):
            return Wait("all_reduce", (edge,))
        case Sleep(seconds=seconds):
            return Wait("sleep", seconds=seconds)
    return Wait()
