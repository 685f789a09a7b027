"""What a role that begins again must know of its queues, the same for every executor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from starling.core.trees import Tree
from starling.executors.base import Start
from starling.formations import Formation, RoleId

__all__ = ["Lane", "restarts_all", "where_it_was"]

COUNTED = ("experience", "gradients")  # whose items a role numbers


class Lane(Protocol):
    """A queue between two roles, seen from outside."""

    @property
    def sent(self) -> int: ...

    @property
    def taken(self) -> int: ...

    def rewind(self, items_back: int) -> None:
        """Offer the last taken items again."""


def restarts_all(formation: Formation, role: RoleId) -> bool:
    """Whether the loss of a role takes all others back to the last checkpoint with it."""
    return formation.lockstep or formation.joined(role.kind)


def where_it_was(
    formation: Formation, role: RoleId, incarnation: int, lane: Callable[[str, int, int], Lane], state: Tree = None
) -> Start:
    """How a lost role begins again; what it took and did not answer is offered to it once more."""
    unanswered: list[int] = []
    sent = 0
    for edge in formation.edges:
        if edge.kind != "queue":
            continue
        if edge.source == role.kind:
            targets = formation.targets(edge, role.index)
            if edge.name in COUNTED:
                sent = max(sent, *(lane(edge.name, role.index, i).sent for i in targets))
            if edge.answers:
                for i in targets:
                    asked = lane(edge.answers, i, role.index)
                    asked.rewind(asked.taken - lane(edge.name, role.index, i).sent)
        if edge.answers and edge.target == role.kind:
            for i in formation.sources(edge, role.index):
                asked = lane(edge.answers, role.index, i)
                unanswered.append(asked.sent - lane(edge.name, i, role.index).taken)
    return Start(incarnation, restore=True, sent=sent, unanswered=tuple(unanswered), state=state)
