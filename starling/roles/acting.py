"""Roles that act: the actor, the inference server that acts for actors without a network, and the evaluator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from starling.core.effects import Latest, Message, Put, Report, RoleCode, Sleep, Take, TakeMany
from starling.core.params import Params, with_scopes
from starling.core.trees import Tree, map_leaves
from starling.roles.chunks import Chunks
from starling.roles.gradients import merged
from starling.roles.policy import VALUES, Policy, RemotePolicy

__all__ = ["actor", "evaluator", "inference", "remote_actor"]


def actor(chunks: Chunks, policy: Policy, lockstep: bool) -> RoleCode:
    """Acts with the newest weights and sends chunks; in lockstep, with those that its last chunk led to."""
    while True:
        newest = yield Latest("weights", after=chunks.sent + 1 if lockstep else 1)
        if newest.version != policy.version or newest.number == 1:
            policy.load(with_scopes(newest.value["params"], Params), newest.version)
        yield Put("experience", (yield from chunks.next()))


def remote_actor(chunks: Chunks, policy: RemotePolicy, lockstep: bool, unanswered: int = 0) -> RoleCode:
    """Acts through the inference server; first come the answers that it did not wait for before."""
    for _ in range(unanswered):
        yield Take(("replies",))
    while True:
        policy.after = chunks.sent + 1 if lockstep else 1
        yield Put("experience", (yield from chunks.next()))


def inference(policy: Policy, blank: Tree, actors: int, batch: int, wait: float) -> RoleCode:
    """Answers the requests of all actors, several at once.

    An actor in lockstep that has sent its chunk asks for weights that are yet to come: its request is held while the
    others finish theirs. ``blank`` is a reply that says nothing.
    """
    held: list[Message] = []
    seen = 0
    while True:
        if len(held) < actors:
            held += yield TakeMany("requests", most=batch or actors, seconds=wait)
            newest = yield Latest("weights")
        else:
            newest = yield Latest("weights", after=min(int(message.item["after"]) for message in held))
        if newest.number != seen:
            policy.load(with_scopes(newest.value["params"], Params), newest.version)
            seen = newest.number
        ready = [message for message in held if message.item["after"] <= seen]
        held = [message for message in held if message.item["after"] > seen]
        for message, reply in zip(ready, answer(policy, ready, blank)):
            yield Put("replies", reply, to=message.sender)


def answer(policy: Policy, messages: list[Message], blank: Tree) -> list[Tree]:
    """A reply to each request; those that ask for the same go through the network together.

    They are stacked and not joined, [requests, rows, …]: so a row's result does not depend, not even by rounding, on
    who else asks.
    """
    replies: dict[int, Tree] = {}
    groups: dict[tuple[int, float], list[int]] = {}
    for i, message in enumerate(messages):
        groups.setdefault((int(message.item["kind"]), float(message.item["explore"])), []).append(i)
    for (kind, explore), members in groups.items():
        asked = map_leaves(lambda *x: np.stack(x), *(messages[i].item for i in members))
        if kind == VALUES:
            result: Tree = {"values": policy.values(asked["obs"])}
        else:
            result = {"chosen": policy.act(asked["obs"], asked["noise"], explore)}
        for row, i in enumerate(members):
            part = map_leaves(lambda x, row=row: x[row], result)
            replies[i] = {**blank, **part, "version": np.int64(policy.version)}
    return [replies[i] for i in range(len(messages))]


def evaluator(policy: Policy, play: Callable[[Policy], dict[str, float]], pause: float, servers: int) -> RoleCode:
    """Plays greedily with the newest weights, again and again, and reports."""
    last = -1
    while True:
        parts = []
        for sender in range(servers):
            parts.append((yield Latest("weights", sender=sender)))
        if parts[0].version != last:
            last = parts[0].version
            policy.load(merged([part.value["params"] for part in parts]), last)
            yield Report(-1, play(policy))
        yield Sleep(pause)
