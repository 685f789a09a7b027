"""The table of algorithms and formations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from typing import Any

from starling.algorithms import ALGORITHMS
from starling.algorithms.base import Algorithm
from starling.core.errors import ConfigError, SpaceError
from starling.core.spaces import Float, Int
from starling.formations import FORMATIONS
from starling.formations.compatibility import Traits, fitting, misfit

__all__ = ["check_fits", "compatibility", "example", "tolerates_lag", "traits_of"]


def traits_of(algorithm: Algorithm) -> Traits:
    """What of an algorithm, with its settings, matters to formations."""
    plan = algorithm.plan
    has = {
        "acts": plan.acts,
        "replays": plan.replays,
        "evaluates": plan.evaluates,
        "steps": not plan.evaluates,
        "corrects": algorithm.corrects,
        "exchanges_gradients": algorithm.exchanges_gradients,
    }
    correctable = not algorithm.corrects and any(each.name == "vtrace" for each in fields(algorithm.Config))
    remedy = f"{algorithm.name}.vtrace=true" if correctable else ""
    return Traits(algorithm.name, frozenset(trait for trait, true in has.items() if true), remedy)


def check_fits(algorithm: Algorithm, formation: str, lockstep: bool) -> None:
    """Refuse a combination that makes no sense, naming what would fit."""
    traits = traits_of(algorithm)
    reason = misfit(formation, traits, lockstep)
    if reason is not None:
        others = [name for name, other in _examples() if misfit(formation, traits_of(other), lockstep) is None]
        raise ConfigError(
            f"{algorithm.name} does not fit the formation {formation}: {reason}. {algorithm.name} fits "
            f"{', '.join(fitting(traits))}; {formation} suits {', '.join(others)}."
        )


def tolerates_lag(cls: type[Algorithm], config: Any) -> bool:
    """Whether the algorithm may learn from experience of older weights."""
    return bool(traits_of(example(cls, config)).has & {"replays", "corrects"})


def example(cls: type[Algorithm], config: Any = None) -> Algorithm:
    """An instance for some spaces that it takes."""
    config = config or cls.Config()
    try:
        return cls.compose(config, Float((2,)), Int((), high=2))
    except SpaceError:
        return cls.compose(config, Float((2,)), Float((2,), -1.0, 1.0))


def _examples() -> Iterator[tuple[str, Algorithm]]:
    """Every algorithm, but for those of plugins that take no spaces like these."""
    for name, cls in ALGORITHMS.items():
        with suppress(SpaceError):
            yield name, example(cls)


def compatibility() -> dict[str, dict[str, str | None]]:
    """For every algorithm and formation, why they do not fit, or None."""
    return {
        name: {formation: misfit(formation, traits_of(algorithm)) for formation in FORMATIONS}
        for name, algorithm in _examples()
    }
