"""The inference server, which acts for actors without a network (SEED), and those actors."""

from __future__ import annotations

import numpy as np

from starling.algorithms.compiled.policy import Policy, memory_where
from starling.core.effects import Latest, Message, Reply, RoleCode, TakeMany
from starling.core.params import Params, with_scopes
from starling.core.trees import Tree, map_leaves
from starling.formations import RoleId, Start
from starling.roles.acting import ACT, VALUES, RemoteActing
from starling.roles.actors import actor, collector_of, targets_of
from starling.roles.context import Context

__all__ = ["inference", "make_inference", "make_remote_actor"]


def inference(policy: Policy, blank: Tree, actors: int, batch: int, wait: float) -> RoleCode:
    """Answers the requests of its actors, several at once, and remembers for each of them.

    An actor in lockstep that has sent its chunk asks for weights that are yet to come: its request is held while the
    others finish theirs. ``blank`` is a reply that says nothing.
    """
    held: list[Message] = []
    seen, steps = 0, 0
    memories: dict[int, Tree] = {}
    while True:
        if len(held) < actors:
            held += yield TakeMany("requests", most=batch or actors, seconds=wait)
            newest = yield Latest("weights", known=seen)
        else:
            newest = yield Latest("weights", after=min(int(each.item["after"]) for each in held), known=seen)
        if newest.number != seen:
            policy.load(newest.value["params"], newest.version)
            seen, steps = newest.number, int(newest.value["steps"])
        ready = [message for message in held if message.item["after"] <= seen]
        held = [message for message in held if message.item["after"] > seen]
        for message, reply in zip(ready, _answers(policy, ready, blank, memories)):
            yield Reply("replies", {**reply, "steps": np.int64(steps)}, to=message.sender)


def _answers(policy: Policy, messages: list[Message], blank: Tree, memories: dict[int, Tree]) -> list[Tree]:
    """A reply to each request; those that ask for the same go through the network together.

    They are stacked and not joined, [requests, rows, …]: so a row's result does not depend, not even by rounding, on
    who else asks.
    """
    version = {"version": np.int64(policy.version)}
    replies: dict[int, Tree] = {i: {**blank, **version} for i in range(len(messages))}
    for kind in (ACT, VALUES):
        asked = [i for i, message in enumerate(messages) if int(message.item["kind"]) == kind]
        if not asked:
            continue
        items = map_leaves(lambda *x: np.stack(x), *(messages[i].item for i in asked))
        before = []
        for i in asked:
            sender = messages[i].sender
            memory = memories.get(sender, policy.no_memory(len(messages[i].item["first"])))
            before.append(memory_where(memory, messages[i].item["first"]) if kind == ACT else memory)
        memory = with_scopes(map_leaves(lambda *x: np.stack(x), *before), Params)
        if kind == VALUES:
            values = policy.values(items["obs"], memory)
            for row, i in enumerate(asked):
                replies[i]["values"] = values[row]
            continue
        choice = policy.act(items["obs"], memory, items["noise"], items["explore"])
        for row, i in enumerate(asked):
            one = map_leaves(lambda x, row=row: x[row], choice)
            memories[messages[i].sender] = with_scopes(one.memory, Params)
            replies[i] |= {"action": one.action, "extras": one.extras, "memory": before[row]}
    return [replies[i] for i in range(len(messages))]


def make_inference(context: Context, role: RoleId, start: Start) -> RoleCode:
    """Acts for the actors that are paired with it."""
    formation, counts = context.formation, context.counts
    actors = len(formation.sources(formation.edge("requests"), role.index))
    return inference(
        context.policy(role), blank_reply(context), actors, counts.inference_batch or 0, counts.inference_wait or 0.0
    )


def make_remote_actor(context: Context, role: RoleId, start: Start) -> RoleCode:
    """An actor without a network."""
    acting = RemoteActing(blank_request(context), context.lockstep_chunks)
    return actor(acting, collector_of(context, role, start, acting), targets_of(context, role))


def blank_request(context: Context) -> Tree:
    algorithm, rows = context.algorithm, context.envs_per_actor
    return {
        "kind": np.int64(0),
        "after": np.int64(1),
        "obs": algorithm.observation_space.ranked(batch=True).zeros((rows,)),
        "first": np.zeros(rows, np.bool_),
        "noise": algorithm.act_noise(np.random.default_rng(0), (rows,)),
        "explore": np.zeros(rows, np.float32),
    }


def blank_reply(context: Context) -> Tree:
    algorithm, rows = context.algorithm, context.envs_per_actor
    spaces = {"action": algorithm.action_space, "extras": algorithm.extras, "memory": algorithm.memory}
    parts = {name: space.ranked(batch=True).zeros((rows,)) for name, space in spaces.items()}
    return {**parts, "values": np.zeros(rows, np.float32), "version": np.int64(0), "steps": np.int64(0)}
