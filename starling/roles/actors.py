"""Roles that act: the actor, and the evaluator that plays greedily beside the run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from starling.algorithms.compiled.evaluation import evaluate
from starling.algorithms.compiled.policy import Policy
from starling.algorithms.compiled.shards import merged
from starling.core.effects import Latest, Put, Report, RoleCode, Sleep
from starling.core.trees import Tree
from starling.envs.ready_rows import ReadyRows
from starling.experience.plan import Accumulator
from starling.formations import RoleId, Start
from starling.roles.acting import Acting, LocalActing, ReadyActing
from starling.roles.collector import Collector
from starling.roles.context import Context
from starling.roles.run_counters import Tally

__all__ = [
    "accumulator_of",
    "actor",
    "blank_chunk",
    "collector_of",
    "make_actor",
    "make_evaluator",
    "targets_of",
]

CHUNK = 32  # steps of each environment in a chunk, where the plan leaves that open and nobody waits for it
WATCH_EVERY = 5.0  # seconds between an evaluator's looks at the weights
WATCHED_EPISODES = 5  # that it plays with each that it sees


def actor(acting: Acting, join: Callable[[int], Collector], targets: list[int]) -> RoleCode:
    """Joins the run, then acts and sends chunks, to each of its targets in turn."""
    collector = join((yield from acting.join()))
    while True:
        yield from acting.refresh()
        chunk = yield from collector.collect()
        yield Put("experience", chunk, to=targets[chunk["about"]["sequence"] % len(targets)])


def make_actor(context: Context, role: RoleId, start: Start) -> RoleCode:
    """An actor with a network of its own."""
    acting = LocalActing(context.policy(role), context.envs_per_actor, context.lockstep_chunks)
    return actor(acting, collector_of(context, role, start, acting), targets_of(context, role))


def targets_of(context: Context, role: RoleId) -> list[int]:
    return context.formation.targets(context.formation.edge("experience"), role.index)


def accumulator_of(context: Context, policy: Policy | None = None, asynchronous: bool = False) -> Accumulator:
    """What makes chunks of an actor's steps; with a policy, first priorities too where buffers ask for them."""
    plan, formation, envs, steps = context.plan, context.formation, context.envs_per_actor, CHUNK
    if formation.lockstep or context.workers:  # up to the next updates: twice, since rows that are no steps count too
        due, actors = plan.boundary(0), 1 if context.workers else max(1, formation.count("actor"))
        steps = CHUNK if due is None else 1 + 2 * -(-due // (envs * actors))
    priorities = policy.priorities if policy is not None and formation.prioritizes else None
    make = plan.asynchronous_accumulator if asynchronous else plan.accumulator
    return make(context.algorithm.step_spaces, envs, steps, priorities)


def collector_of(context: Context, role: RoleId, start: Start, acting: Acting) -> Callable[[int], Collector]:
    """Makes a role's collector when the run has come to so many steps."""

    def join(steps: int) -> Collector:
        envs = context.envs(context.envs_per_actor, "actor", role.index, steps, start.incarnation)
        policy = acting.policy if isinstance(acting, LocalActing) else None
        some = ReadyActing(acting, envs) if isinstance(acting, LocalActing) and isinstance(envs, ReadyRows) else None
        return Collector(
            some or acting,
            envs,
            accumulator_of(context, policy, asynchronous=some is not None),
            context.algorithm,
            context.length.total,
            context.seed,
            role.index,
            actors=context.formation.count(role.kind),
            waits_for=context.workers or int(context.formation.lockstep),
            joined_at=steps,
            incarnation=start.incarnation,
            sent=start.sent,
        )

    return join


def blank_chunk(context: Context) -> Tree:
    """A chunk in the layout of the largest."""
    blank = accumulator_of(context).blank()
    if context.formation.prioritizes and context.plan.prioritizes:
        blank["items"]["priority"] = np.zeros(len(blank["items"]["reward"]), np.float32)
    return {"data": blank, "about": Tally().take(actor=0, sequence=0)}


def evaluator(policy: Policy, play: Callable[[Policy], float], servers: int) -> RoleCode:
    """Plays greedily with the newest weights, again and again, and reports."""
    last = -1
    while True:
        parts = []
        for sender in range(servers):
            parts.append((yield Latest("weights", sender=sender)))
        if parts[0].version != last:
            last = parts[0].version
            policy.load(merged([part.value["params"] for part in parts]), last)
            yield Report(-1, {"eval_return": play(policy)})
        yield Sleep(WATCH_EVERY)


def make_evaluator(context: Context, role: RoleId, start: Start) -> RoleCode:
    """An evaluator; the weights of several parameter servers are joined."""

    def play(policy: Policy) -> float:
        with context.envs(1, "evaluator", role.index, start.incarnation) as envs:
            return evaluate(policy, envs, WATCHED_EPISODES).mean

    return evaluator(context.policy(role), play, max(1, context.formation.count("server")))
