"""What a role that begins again must know of its queues, the same for every executor."""

from __future__ import annotations

from collections.abc import Callable

from starling.core.trees import Tree
from starling.executors.base import Start
from starling.executors.storage import Storage
from starling.formations import Formation, RoleId

__all__ = ["restart_of", "restarts_all"]


def restarts_all(formation: Formation, role: RoleId) -> bool:
    """Whether the crash of a role takes all others back to the last checkpoint with it."""
    return formation.lockstep or formation.joined(role.kind)


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
        if edge.kind != "queue":
            continue
        if edge.source == role.kind:
            targets = formation.targets(edge, role.index)
            if edge.counted:
                # a role that crashed on its round through several receivers begins that round again: those without
                # its item would wait for it for ever
                sent = max(sent, min(storage.lane(edge.name, role.index, i).sent for i in targets))
            if edge.answers:
                for i in targets:
                    if done(RoleId(edge.target, i)):
                        continue  # answers to it may have gone nowhere, so they do not count its requests
                    requests = storage.lane(edge.answers, i, role.index)
                    requests.rewind(requests.taken - storage.lane(edge.name, role.index, i).sent)
        if edge.answers and edge.target == role.kind:
            for i in formation.sources(edge, role.index):
                requests = storage.lane(edge.answers, role.index, i)
                unanswered.append(requests.sent - storage.lane(edge.name, i, role.index).taken)
    return Start(incarnation, restore=True, sent=sent, unanswered=tuple(unanswered), state=state)
