"""What a role that begins again must know of its queues, the same for every executor."""

from __future__ import annotations

from collections.abc import Callable

from starling.core.trees import Tree
from starling.executors.edges import Storage
from starling.formations import Formation, RoleId, Start

__all__ = ["restart_of"]


def restart_of(
    formation: Formation,
    role: RoleId,
    incarnation: int,
    storage: Storage,
    done: Callable[[RoleId], bool],
    state: Tree = None,
) -> Start:
    """How a crashed role begins again; what it took and did not answer is offered to it once more."""
    unanswered: list[int] = []
    sent = 0
    for edge in formation.edges:
        targets = formation.targets(edge, role.index) if edge.source == role.kind else []
        sources = formation.sources(edge, role.index) if edge.target == role.kind else []
        if edge.counted and targets:
            # a role that crashed on its round through several receivers begins that round again: those without its
            # item would wait for it for ever
            sent = max(sent, min(storage.lane(edge.name, role.index, i).sent for i in targets))
        if not edge.answers:
            continue
        for i in targets:
            if not done(RoleId(edge.target, i)):  # else answers may have gone nowhere: they do not count its requests
                requests = storage.lane(edge.answers, i, role.index)
                requests.rewind(requests.taken - storage.lane(edge.name, role.index, i).sent)
        for i in sources:
            requests = storage.lane(edge.answers, role.index, i)
            unanswered.append(requests.sent - storage.lane(edge.name, i, role.index).taken)
    return Start(incarnation, restore=True, sent=sent, unanswered=tuple(unanswered), state=state)
