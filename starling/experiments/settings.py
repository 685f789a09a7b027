"""Settings from mappings: typed, checked, with "did you mean"."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from starling.components.base import Component
from starling.components.spec_values import to_value
from starling.components.specs import from_spec, to_spec
from starling.core.errors import ConfigError, UnknownNameError

__all__ = ["load_yaml", "overridden", "plain"]

T = TypeVar("T")


def load_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML (or JSON) file."""
    try:
        loaded = yaml.safe_load(Path(path).read_text())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from None
    if not isinstance(loaded, dict):
        raise ConfigError(f"{path} holds {type(loaded).__name__}; settings are a mapping of names to values.")
    return loaded


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
        checked[name] = dict(value) if free else to_value(hints[name], value, f"{where}.{name}", from_spec)
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
