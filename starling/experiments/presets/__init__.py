"""Presets: settings that are known to learn, one YAML file per algorithm and environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from starling.core.errors import ConfigError
from starling.core.registry import Registry

__all__ = ["PRESETS", "find_preset"]


def _read(preset: Any) -> Any:
    """The settings of a preset, in the form of a run's configuration file, or those in such a file."""
    settings = yaml.safe_load(preset.read_text(encoding="utf-8")) if isinstance(preset, Path) else preset
    if not isinstance(settings, Mapping) or not {"algo", "env", "steps"} <= settings.keys():
        raise ConfigError("a preset is a mapping, and says at least algo, env and steps.")
    return {**settings, "steps": int(float(settings["steps"]))}  # YAML reads 1e5 as a text


_OWN = {file.stem: file for file in sorted(Path(__file__).parent.glob("*.yaml"))}
PRESETS: Registry[Mapping[str, Any]] = Registry("preset", _OWN, Mapping, _read)


def find_preset(algo: str, env: str, formation: str | None = None) -> str | None:
    """The preset for an algorithm on an environment: the formation's, else one for ``single``, else any."""
    found = {name: each for name, each in PRESETS.items() if (each["algo"], each["env"]) == (algo, env)}
    for wanted in (formation, "single"):
        for name, settings in found.items():
            if settings.get("formation", "single") == wanted:
                return name
    return next(iter(found), None)
