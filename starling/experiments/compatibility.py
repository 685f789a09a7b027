"""The table of algorithms and formations."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from starling.algorithms import ALGORITHMS
from starling.algorithms.base import Algorithm
from starling.algorithms.plans import Replay
from starling.core.errors import ConfigError, SpaceError
from starling.core.spaces import Float, Int
from starling.formations import FORMATIONS
from starling.formations.compatibility import Traits, fitting, misfit

__all__ = ["check_fits", "compatibility", "idle_settings", "tolerates_lag", "traits_of"]


def traits_of(algorithm: Algorithm) -> Traits:
    correctable = not algorithm.corrects and any(field.name == "vtrace" for field in fields(algorithm.Config))
    return Traits(
        name=algorithm.name,
        replays=isinstance(algorithm.plan, Replay),
        corrects=algorithm.corrects,
        prioritizes=algorithm.prioritizes,
        remedy=f"{algorithm.name}.vtrace=true" if correctable else "",
    )


def check_fits(algorithm: Algorithm, formation: str, lockstep: bool) -> None:
    """Refuse a combination that makes no sense, naming what would fit."""
    traits = traits_of(algorithm)
    reason = misfit(formation, traits, lockstep)
    if reason is not None:
        others = [
            name for name, cls in ALGORITHMS.items() if misfit(formation, traits_of(example(cls)), lockstep) is None
        ]
        raise ConfigError(
            f"{algorithm.name} does not fit the formation {formation}: {reason}. {algorithm.name} fits "
            f"{', '.join(fitting(traits))}; {formation} suits {', '.join(others)}."
        )


def tolerates_lag(cls: type[Algorithm], config: Any) -> bool:
    """Whether the algorithm may learn from experience of older weights."""
    traits = traits_of(example(cls, config))
    return traits.replays or traits.corrects


def idle_settings(cls: type[Algorithm], formation: str) -> dict[str, str]:
    """The algorithm's settings that have no effect in a formation, and why."""
    if formation == "single":
        return {}
    idle = {"overlap": "whose roles are at work at the same time anyway"}
    if formation == "apex":
        idle |= dict.fromkeys(cls.pace_settings, "where samples_per_insert says how often to learn")
        idle |= dict.fromkeys(cls.exploration_settings, "where each actor explores in its own way")
    return {name: why for name, why in idle.items() if name in {field.name for field in fields(cls.Config)}}


def example(cls: type[Algorithm], config: Any = None) -> Algorithm:
    """An instance for some spaces that it takes."""
    config = config or cls.Config()
    try:
        return cls.compose(config, Float((2,)), Int((), high=2), config.envs, 1_000)
    except SpaceError:
        return cls.compose(config, Float((2,)), Float((2,), -1.0, 1.0), config.envs, 1_000)


def compatibility() -> dict[str, dict[str, str | None]]:
    """For every algorithm and formation, why they do not fit, or None."""
    return {
        algo: {formation: misfit(formation, traits_of(example(cls))) for formation in FORMATIONS}
        for algo, cls in ALGORITHMS.items()
    }
