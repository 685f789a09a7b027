"""``single``: an actor and a learner in one role, with nothing copied between them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from starling.core.effects import Checkpoint, Effect, Latest, Message, Newest, Publish, Put, RoleCode, Take
from starling.core.trees import Tree
from starling.formations import RoleId, Start
from starling.records.checkpoint import restoring
from starling.roles.acting import LocalActing
from starling.roles.actors import actor, collector_of
from starling.roles.collector import Collector
from starling.roles.context import Context
from starling.roles.learning import chunks_of_actors, learner, learning_of, no_chunks

__all__ = ["fused", "make_single"]


def fused(learner: RoleCode, actor: RoleCode, with_actor: Callable[[Tree], Tree]) -> RoleCode:
    """Two roles as one: what they send each other stays inside, and what they ask of others goes out.

    The actor acts when the learner waits for its chunk; ``with_actor`` adds the actor's state to the learner's.
    """
    newest: Newest | None = None
    acting = _until_put(actor, lambda: newest)
    try:
        effect = next(learner)
        while True:
            result: Any = None
            if isinstance(effect, Publish):
                number = 1 if newest is None else newest.number + 1
                newest = Newest(effect.value, effect.version, number)
            elif isinstance(effect, Take):
                result = Message("experience", 0, (yield from _next_chunk(acting)))
            elif isinstance(effect, Checkpoint):
                result = yield Checkpoint(effect.steps, partial(_both, effect.live, with_actor))
            else:
                result = yield effect
            effect = learner.send(result)
    except StopIteration as stop:
        return stop.value
    finally:
        actor.close()


def _both(state: Callable[[], Tree], with_actor: Callable[[Tree], Tree]) -> Tree:
    return with_actor(state())


def _until_put(actor: RoleCode, newest: Callable[[], Newest | None]) -> Generator[Effect | Put, Any, None]:
    """The actor's effects, its reading of weights apart, which is done here."""
    effect = next(actor)
    while True:
        if isinstance(effect, Latest):
            value = newest()
            if value is None or value.number < effect.after:
                raise RuntimeError("the actor waits for weights that nobody sends")
            known = value.number == effect.known
            found = None if known else value.value() if callable(value.value) else value.value
            result: Any = Newest(found, value.version, value.number)
        else:
            result = yield effect
        effect = actor.send(result)


def _next_chunk(acting: Generator[Effect | Put, Any, None]) -> Generator[Effect, Any, Tree]:
    """Let the actor act until it has a chunk."""
    effect = next(acting)
    while not isinstance(effect, Put):
        effect = acting.send((yield effect))
    return effect.item


def make_single(context: Context, role: RoleId, start: Start) -> RoleCode:
    """Acts and learns in one role; with no acting at all where the plan has none."""
    learning = learning_of(context, role, start, overlap=bool(context.counts.overlap))
    if not context.plan.acts:
        return fused(learner(learning, lambda: no_chunks(learning)), _nobody(), lambda learned: learned)
    acting = LocalActing(context.policy(role), context.envs_per_actor, context.lockstep_chunks)
    join = collector_of(context, role, start, acting)
    collectors: list[Collector] = []

    def joined(steps: int) -> Collector:
        collectors.append(join(steps))
        state = learning.restored or {}
        if "collector" in state:  # else it was saved before the first step
            with restoring(role):
                collectors[0].restore(state["collector"])
                acting.restore(state["memory"])
        return collectors[0]

    def with_actor(learned: Tree) -> Tree:
        if not collectors:  # before the first step
            return learned
        return {**learned, "collector": collectors[0].state(), "memory": acting.state()}

    code = learner(learning, lambda: chunks_of_actors(learning, [0], lockstep=True, borrow=False))
    return fused(code, actor(acting, joined, [0]), with_actor)


def _nobody() -> RoleCode:
    """Acts where nobody does."""
    return
    yield
