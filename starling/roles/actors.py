"""Roles that act: the actor, and the evaluator that plays greedily beside the run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from starling.core.effects import Latest, Put, Report, RoleCode, Sleep
from starling.core.trees import Tree
from starling.envs.ready_rows import ReadyRows
from starling.experience.plan import Accumulator
from starling.formations import RoleId, Start
from starling.roles.acting import Acting, LocalActing, ReadyActing
from starling.roles.collector import Collector, Exploring, blank_about
from starling.roles.context import Context
from starling.roles.parameters import merged
from starling.roles.policy import Policy

__all__ = [
    "accumulator_of",
    "actor",
    "blank_chunk",
    "chunks_in_lockstep",
    "collector_of",
    "envs_per_actor",
    "make_actor",
    "make_evaluator",
    "targets_of",
]

CHUNK = 32  # steps of each environment in a chunk, where the plan leaves that open and nobody waits for it
WATCH_EVERY = 5.0  # seconds between an evaluator's looks at the weights


def actor(acting: Acting, join: Callable[[int], Collector], targets: list[int]) -> RoleCode:
    """Joins the run, then acts and sends chunks, to each of its targets in turn."""
    collector = join((yield from acting.join()))
    while True:
        yield from acting.refresh()
        chunk = yield from collector.collect()
        yield Put("experience", chunk, to=targets[chunk["about"]["sequence"] % len(targets)])


def make_actor(context: Context, role: RoleId, start: Start) -> RoleCode:
    """An actor with a network of its own."""
    rows = envs_per_actor(context, role.kind)
    acting = LocalActing(Policy(context.acting_graph(role)), rows, chunks_in_lockstep(context))
    return actor(acting, collector_of(context, role, start, acting), targets_of(context, role))


def chunks_in_lockstep(context: Context) -> int:
    """Chunks that each actor makes with the same weights; 0 where it runs ahead."""
    return context.chunks_per_actor if context.formation.lockstep else 0


def targets_of(context: Context, role: RoleId) -> list[int]:
    return context.formation.targets(context.formation.edge("experience"), role.index)


def envs_per_actor(context: Context, kind: str) -> int:
    """Environments of each role of this kind."""
    if kind == "worker":
        return context.plan.envs
    return context.plan.envs_per_actor(context.batch_chunks)


def accumulator_of(
    context: Context, envs: int, kind: str, policy: Policy | None = None, asynchronous: bool = False
) -> Accumulator:
    """What makes chunks of an actor's steps; with a policy, first priorities too where buffers ask for them."""
    plan, formation = context.plan, context.formation
    steps = CHUNK
    if formation.lockstep or kind == "worker":
        due = plan.boundary(0)
        actors = 1 if kind == "worker" else formation.count(kind)
        steps = CHUNK if due is None else 1 + 2 * -(-due // (envs * actors))  # twice: rows that are no steps count too
    priorities = policy.priorities if policy is not None and formation.prioritizes else None
    make = plan.asynchronous_accumulator if asynchronous else plan.accumulator
    return make(context.algorithm.step_spaces, envs, steps, priorities)


def collector_of(context: Context, role: RoleId, start: Start, acting: Acting) -> Callable[[int], Collector]:
    """Makes a role's collector when the run has come to so many steps."""
    count = context.formation.count(role.kind)
    rows = envs_per_actor(context, role.kind)

    def join(steps: int) -> Collector:
        policy = acting.policy if isinstance(acting, LocalActing) else None
        numbers = np.arange(role.index * rows, (role.index + 1) * rows)
        envs = context.envs(rows, "actor", role.index, steps, start.incarnation)
        some = ReadyActing(acting, envs) if isinstance(acting, LocalActing) and isinstance(envs, ReadyRows) else None
        return Collector(
            some or acting,
            envs,
            accumulator_of(context, rows, role.kind, policy, asynchronous=some is not None),
            context.algorithm,
            Exploring(context.algorithm, numbers, rows * count, context.length.total),
            context.seed,
            role.index,
            count,
            waits_for=count if role.kind == "worker" else int(context.formation.lockstep),
            joined_at=steps,
            incarnation=start.incarnation,
            sent=start.sent,
            total=context.length.total,
        )

    return join


def blank_chunk(context: Context, kind: str = "actor") -> Tree:
    """A chunk in the layout of the largest."""
    envs = envs_per_actor(context, kind)
    steps = accumulator_of(context, envs, kind)
    blank = steps.blank()
    if context.formation.prioritizes and context.plan.prioritizes:
        rows = len(blank["items"]["reward"])
        blank["items"]["priority"] = np.zeros(rows, np.float32)
    return {"data": blank, "about": blank_about()}


def evaluator(policy: Policy, play: Callable[[Policy], dict[str, float]], servers: int) -> RoleCode:
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
        yield Sleep(WATCH_EVERY)


def make_evaluator(context: Context, role: RoleId, start: Start) -> RoleCode:
    """An evaluator; the weights of several parameter servers are joined."""

    def play(policy: Policy) -> dict[str, float]:
        with context.envs(1, "evaluator", role.index, start.incarnation) as envs:
            return context.evaluate(policy, envs)

    return evaluator(Policy(context.acting_graph(role)), play, max(1, context.formation.count("server")))
