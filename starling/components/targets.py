"""Target networks: older or slower copies of parameters. Pure functions of trees, inside compiled code."""

from __future__ import annotations

from typing import Any

from starling.backends import ops
from starling.core.trees import Tree, leaves, refilled

__all__ = ["periodic", "polyak"]


def periodic(target: Tree, params: Tree, count: Any, period: int) -> Tree:
    """``params`` where ``count`` is a multiple of ``period``, else ``target`` as it is, without touching it."""
    due = count % period == 0
    # The leaves alone: the branches of a conditional must agree in their containers, the two trees need not.
    chosen = ops(due).cond(due, lambda old, new: new, lambda old, new: old, leaves(target), leaves(params))
    return refilled(target, chosen)


def polyak(target: Tree, params: Tree, tau: float) -> Tree:
    """(1 − τ) · target + τ · params, leaf by leaf."""
    if not leaves(params):  # a server that holds none of these parameters
        return target
    return ops(leaves(params)[0]).elementwise(lambda old, new: ((1.0 - tau) * old + tau * new,), target, params)[0]
