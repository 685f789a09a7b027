"""From what YAML and JSON can say to what a component's field expects."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, Union, get_args, get_origin

from starling.components.base import Component
from starling.components.schedules import Constant
from starling.core.errors import ConfigError, StarlingError, UnknownNameError

__all__ = ["to_value"]


def to_value(hint: Any, value: Any, where: str, component: Callable[[Any, str], Component]) -> Any:
    """``value`` as the type ``hint``; ``component`` makes one of a nested spec."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return _freely(value, where, component)
    if origin in (Union, types.UnionType):
        return _first_that_fits(inner, hint, value, where, component)
    if origin is Literal:
        if value not in inner:
            raise UnknownNameError(where.rpartition(".")[2], value, [str(one) for one in inner], where)
        return value
    if isinstance(hint, type) and issubclass(hint, Component):
        return _component(hint, value, where, component)
    if origin in (tuple, list, Sequence) or hint in (tuple, list):
        return _sequence(inner, value, where, component)
    if origin in (dict, Mapping) or hint is dict:
        _expect(isinstance(value, Mapping), value, "a dict", where)
        kind = inner[1] if inner else Any
        return {key: to_value(kind, child, f"{where}.{key}", component) for key, child in value.items()}
    return _scalar(hint, value, where)


def _scalar(hint: Any, value: Any, where: str) -> Any:
    if hint is bool:
        return _expect(isinstance(value, bool), value, "true or false", where)
    if hint in (int, float) and isinstance(value, str):  # YAML reads 1e-3 as a text
        with suppress(ValueError):
            value = float(value)
    if hint is int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return _expect(isinstance(value, int) and not isinstance(value, bool), value, "a whole number", where)
    if hint is float:
        return float(_expect(isinstance(value, (int, float)) and not isinstance(value, bool), value, "a number", where))
    if hint is str:
        return _expect(isinstance(value, str), value, "a text", where)
    if hint in (None, type(None)):
        return _expect(value is None, value, "null", where)
    if isinstance(hint, type) and isinstance(value, hint):
        return value
    name = hint.__name__ if isinstance(hint, type) else str(hint)
    raise ConfigError(f"{where}: {value!r:.60} arrived; a {name} cannot be written in a spec, set it in Python.")


def _component(kind: type[Component], value: Any, where: str, component: Callable[[Any, str], Component]) -> Component:
    if issubclass(Constant, kind) and kind is not Component and isinstance(value, (int, float, str)):
        return Constant(_scalar(float, value, where))
    made = component(value, where)
    what = f"{type(made).__name__}, where a {kind.__name__} belongs"
    if not isinstance(made, kind):
        raise ConfigError(f"{where}: {what} — see the components that are one.")
    return made


def _sequence(
    inner: tuple[Any, ...], value: Any, where: str, component: Callable[[Any, str], Component]
) -> tuple[Any, ...]:
    _expect(isinstance(value, (list, tuple)), value, "a list", where)
    if not inner or inner[-1] is Ellipsis or len(inner) == 1 != len(value):
        kinds = [inner[0] if inner else Any] * len(value)
    else:
        _expect(len(value) == len(inner), value, f"a list of {len(inner)}", where)
        kinds = list(inner)
    return tuple(to_value(kind, child, f"{where}.{i}", component) for i, (kind, child) in enumerate(zip(kinds, value)))


def _freely(value: Any, where: str, component: Callable[[Any, str], Component]) -> Any:
    """A value of no declared type: lists become tuples, dicts with a type become components."""
    if isinstance(value, Mapping):
        if "type" in value:
            return component(value, where)
        return {key: _freely(child, f"{where}.{key}", component) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(_freely(child, f"{where}.{i}", component) for i, child in enumerate(value))
    return value


def _first_that_fits(
    kinds: tuple[Any, ...], hint: Any, value: Any, where: str, component: Callable[[Any, str], Component]
) -> Any:
    some = [kind for kind in kinds if kind is not type(None)]
    if value is not None and len(some) == 1:
        return to_value(some[0], value, where, component)
    # A spec of a component says so itself: its own error helps more than "none fits".
    exact = [kind for kind in kinds if isinstance(kind, type) and type(value) is kind]
    if not exact and isinstance(value, Mapping) and "type" in value:
        exact = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Component)]
    if exact:
        return to_value(exact[0], value, where, component)
    for kind in kinds:
        try:
            return to_value(kind, value, where, component)
        except StarlingError:
            continue
    raise ConfigError(f"{where}: {value!r:.60} ({type(value).__name__}) arrived; expected {hint}.")


def _expect(fits: bool, value: Any, expected: str, where: str) -> Any:
    if not fits:
        raise ConfigError(f"{where}: {value!r:.60} ({type(value).__name__}) arrived; expected {expected}.")
    return value
