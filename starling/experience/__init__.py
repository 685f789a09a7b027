"""Experience: what an algorithm learns from, and when. One module per plan."""

from __future__ import annotations

from typing import TypeVar

from starling.core.errors import ConfigError
from starling.core.registry import Registry
from starling.experience.plan import Plan

__all__ = ["PLANS", "plan_like"]

P = TypeVar("P", bound=Plan)

PLANS: Registry[type[Plan]] = Registry(
    "plan",
    {
        "rollouts": "starling.experience.rollouts:Rollouts",
        "transitions": "starling.experience.transitions:Transitions",
        "sequences": "starling.experience.sequences:Sequences",
        "episodes": "starling.experience.episodes:Episodes",
        "evaluations": "starling.experience.evaluations:Evaluations",
        "data_set": "starling.experience.demonstrations:DataSet",
    },
    Plan,
)


def plan_like(own: type[P], name: str) -> type[P]:
    """The plan called ``name``, for an algorithm that learns from batches like those of ``own``."""
    found = PLANS[name]
    if issubclass(found, own):
        return found
    fits = ", ".join(each for each, plan in PLANS.items() if issubclass(plan, own))
    raise ConfigError(f"plan={name!r} does not make batches like those of {own.__name__}; try {fits}.")
