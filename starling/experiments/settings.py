"""Settings from mappings: typed, checked, with "did you mean"."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import yaml

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
    """The frozen dataclass ``settings`` with ``changes``, each checked against its field's type."""
    cls = type(settings)
    hints = typing.get_type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    checked = {}
    for key, value in changes.items():
        name = str(key).replace("-", "_")
        if name not in names:
            raise UnknownNameError("setting", key, names, where)
        checked[name] = _checked(value, hints[name], f"{where}.{name}")
    return dataclasses.replace(settings, **checked)  # type: ignore[type-var]


def _checked(value: Any, hint: Any, where: str) -> Any:
    """``value`` as a ``hint``; numbers may come as integers, sequences as lists."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        return _checked(value, next(arg for arg in args if arg is not type(None)), where)
    if origin is typing.Literal:
        if value not in args:
            raise UnknownNameError(where.rpartition(".")[2], value, [str(arg) for arg in args], where)
        return value
    if origin is tuple and isinstance(value, (list, tuple)):
        return tuple(_checked(item, args[0], f"{where}[{i}]") for i, item in enumerate(value))
    if hint in (float, int) and isinstance(value, str):  # YAML reads 1e-3 as a string
        with suppress(ValueError):
            value = float(value)
    if hint is float:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    elif hint is int:
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    elif isinstance(value, origin or hint):
        return value
    expected = getattr(hint, "__name__", str(hint)) if origin is None else str(hint)
    raise ConfigError(f"{where}={value!r}; a value of type {expected} was expected.")


def plain(settings: Any) -> dict[str, Any]:
    """A dataclass as a mapping that YAML and JSON can hold."""

    def convert(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return [convert(item) for item in value]
        if isinstance(value, Mapping):
            return {str(key): convert(item) for key, item in value.items()}
        return value

    return {key: convert(value) for key, value in dataclasses.asdict(settings).items()}
