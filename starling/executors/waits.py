"""What a role waits for, in words."""

from __future__ import annotations

from starling.core.effects import AllReduce, Effect, Latest, Put, Sleep, Take, TakeMany

__all__ = ["describe", "edge_of"]


def edge_of(effect: Effect | None) -> str | None:
    """The edge that an effect is about."""
    if isinstance(effect, Take):
        return "|".join(effect.edges)
    return getattr(effect, "edge", None)


def describe(effect: Effect | None) -> str:
    if isinstance(effect, Put):
        return f"waits to put on {effect.edge!r}, which is full"
    if isinstance(effect, Take):
        whose = "" if effect.sender is None else f" from sender {effect.sender}"
        return f"waits for {' or '.join(map(repr, effect.edges))}{whose}{f' ({effect.why})' if effect.why else ''}"
    if isinstance(effect, TakeMany):
        return f"waits for {effect.edge!r}"
    if isinstance(effect, Latest):
        return f"waits for value {effect.after} of {effect.edge!r}"
    if isinstance(effect, AllReduce):
        return f"waits for the others of {effect.edge!r}"
    if isinstance(effect, Sleep):
        return f"sleeps for {effect.seconds:g} s"
    return "works"
