"""Which algorithm fits which formation, and why not, from what the algorithm says of itself."""

from __future__ import annotations

from dataclasses import dataclass

from starling.formations.catalogue import FORMATIONS

__all__ = ["Traits", "fitting", "misfit"]


@dataclass(frozen=True)
class Traits:
    """What of an algorithm matters here."""

    name: str
    replays: bool  # learns from a table, whose experience may be old
    corrects: bool  # may learn from rollouts of older weights
    prioritizes: bool  # can say which experience matters most
    remedy: str = ""  # the setting that would let it correct, where there is one


def misfit(formation: str, traits: Traits, lockstep: bool = False) -> str | None:
    """Why an algorithm does not fit a formation; None where it does."""
    if formation == "apex":
        if not traits.replays:
            return f"{traits.name} learns from each rollout once, and apex replays transitions"
        if not traits.prioritizes:
            return f"{traits.name} has no priorities, by which the buffers of apex are drawn from"
    if formation == "actor_learner" and not lockstep and not (traits.replays or traits.corrects):
        remedy = f"; {traits.remedy} corrects for it" if traits.remedy else ""
        return (
            f"{traits.name} takes every rollout for one of its newest weights, and actors of {formation} run ahead"
            f"{remedy}; max_lag=0 lets nobody run ahead"
        )
    return None


def fitting(traits: Traits) -> list[str]:
    """The formations that an algorithm fits."""
    return [name for name in FORMATIONS if misfit(name, traits) is None]
