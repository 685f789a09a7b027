"""What roles take of memory, by purpose: see ``Roles.reserves``. Environments are not counted."""

from __future__ import annotations

from starling.algorithms.compiled.sizes import acting_bytes, state_bytes
from starling.core.trees import leaves
from starling.roles.actors import accumulator_of
from starling.roles.buffers import plan_of_buffers
from starling.roles.context import Context

__all__ = ["chunk", "experience", "learner", "memories", "network", "shard", "shard_of_experience"]

Bytes = dict[str, int]


def learner(context: Context) -> Bytes:
    return {"learner's state": state_bytes(context.assembly)}


def shard(context: Context) -> Bytes:
    """The part of the state that each server has, about."""
    return {"learner's state": state_bytes(context.assembly) // context.formation.count("server")}


def experience(context: Context) -> Bytes:
    return context.plan.reserves(context.algorithm.step_spaces)


def shard_of_experience(context: Context) -> Bytes:
    return plan_of_buffers(context).reserves(context.algorithm.step_spaces)


def network(context: Context) -> Bytes:
    return {"weights to act with": acting_bytes(context.assembly)}


def chunk(context: Context) -> Bytes:
    sizes = [leaf.nbytes for leaf in leaves(accumulator_of(context).blank())] if context.plan.acts else []
    return {"chunk": sum(sizes)}


def memories(context: Context) -> Bytes:
    """What an inference server remembers for its actors."""
    rows = context.envs_per_actor * context.formation.count("actor")
    return {"memory of actors": rows * context.algorithm.memory.nbytes}
