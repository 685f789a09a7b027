"""Which algorithm fits which formation, and why not, from what both say of themselves."""

from __future__ import annotations

from dataclasses import dataclass

from starling.formations.catalogue import FORMATIONS

__all__ = ["Traits", "fitting", "misfit"]


@dataclass(frozen=True)
class Traits:
    """What of an algorithm matters here."""

    name: str
    has: frozenset[str]  # acts, steps, replays, corrects, evaluates, exchanges_gradients
    remedy: str = ""  # the setting that would let it correct for lag, where there is one


def misfit(formation: str, traits: Traits, lockstep: bool = False) -> str | None:
    """Why an algorithm does not fit a formation; None where it does."""
    for need in FORMATIONS[formation].needs:
        if traits.has & set(need.traits) or (need.unless_lockstep and lockstep):
            continue
        reason = need.reason.format(algo=traits.name, formation=formation)
        return f"{reason}; {traits.remedy} corrects for it" if need.unless_lockstep and traits.remedy else reason
    return None


def fitting(traits: Traits) -> list[str]:
    """The formations that an algorithm fits."""
    return [name for name in FORMATIONS if misfit(name, traits) is None]
