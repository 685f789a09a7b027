"""Settings from mappings: typed, checked, with "did you mean"."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from starling.components.base import Component
from starling.components.spec_values import to_value
from starling.components.specs import from_spec, to_spec
from starling.core.errors import ConfigError, UnknownNameError

__all__ = ["overridden", "plain"]

T = TypeVar("T")


def overridden(settings: T, changes: Mapping[str, Any], where: str) -> T:
    """The frozen dataclass ``settings`` with ``changes``, each as its field's type."""
    cls = type(settings)
    hints = typing.get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    checked = {}
    for key, value in changes.items():
        name = str(key).replace("-", "_")
        if name not in names:
            raise UnknownNameError("setting", key, names, where)
        free = typing.get_origin(hints[name]) is dict and isinstance(value, Mapping)  # somebody else's settings
        try:
            checked[name] = dict(value) if free else to_value(hints[name], value, f"{where}.{name}", from_spec)
        except (OverflowError, RecursionError, ValueError) as error:  # numbers or lists beyond what Python takes
            raise ConfigError(f"{where}.{name} is too large or too deep to be used: {error}.") from None
    return dataclasses.replace(settings, **checked)  # type: ignore[type-var]


def plain(settings: Any) -> dict[str, Any]:
    """A dataclass as a mapping that YAML and JSON can hold."""

    def convert(value: Any) -> Any:
        if isinstance(value, Component):
            return to_spec(value)
        if isinstance(value, (tuple, list)):
            return [convert(item) for item in value]
        if isinstance(value, Mapping):
            return {str(key): convert(item) for key, item in value.items()}
        return value

    return {field.name: convert(getattr(settings, field.name)) for field in dataclasses.fields(settings)}
