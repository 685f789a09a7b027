"""What each kind of role takes of memory, by purpose: see ``Roles.reserves``. Environments are not counted."""

from __future__ import annotations

from starling.algorithms.compiled.sizes import acting_bytes, state_bytes
from starling.core.trees import leaves
from starling.roles.actors import accumulator_of
from starling.roles.buffers import plan_of_buffers
from starling.roles.context import Context

__all__ = [
    "of_actor",
    "of_buffer",
    "of_evaluator",
    "of_inference",
    "of_learner",
    "of_remote_actor",
    "of_sampling_learner",
    "of_server",
    "of_single",
    "of_worker",
]

Bytes = dict[str, int]


def of_actor(context: Context) -> Bytes:
    return {**of_evaluator(context), **of_remote_actor(context)}


def of_remote_actor(context: Context) -> Bytes:
    return {"chunk": sum(leaf.nbytes for leaf in leaves(accumulator_of(context).blank()))}


def of_evaluator(context: Context) -> Bytes:
    return {"weights to act with": acting_bytes(context.assembly)}


def of_inference(context: Context) -> Bytes:
    rows = context.envs_per_actor * context.formation.count("actor")
    return {**of_evaluator(context), "memory of actors": rows * context.algorithm.memory.nbytes}


def of_learner(context: Context) -> Bytes:
    return {**of_sampling_learner(context), **context.plan.reserves(context.algorithm.step_spaces)}


def of_sampling_learner(context: Context) -> Bytes:
    """Of one that keeps no experience itself."""
    return {"learner's state": state_bytes(context.assembly)}


def of_buffer(context: Context) -> Bytes:
    return plan_of_buffers(context).reserves(context.algorithm.step_spaces)


def of_single(context: Context) -> Bytes:
    return {**of_learner(context), **(of_actor(context) if context.plan.acts else {})}


def of_server(context: Context) -> Bytes:
    """Its part of the state, about."""
    return {"learner's state": state_bytes(context.assembly) // context.formation.count("server")}


def of_worker(context: Context) -> Bytes:
    return {**of_learner(context), **of_actor(context)}
