"""Presets: settings that are known to learn, one YAML file per algorithm and environment."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from starling.core.errors import UnknownNameError

__all__ = ["Preset", "find_preset", "get_preset", "presets"]


@dataclass(frozen=True)
class Preset:
    """Named settings; ``settings`` has the form of a run's configuration file."""

    name: str
    settings: dict[str, Any]


@cache
def presets() -> dict[str, Preset]:
    """Every preset by name."""
    files = sorted(Path(__file__).parent.glob("*.yaml"))
    return {file.stem: Preset(file.stem, yaml.safe_load(file.read_text())) for file in files}


def get_preset(name: str) -> Preset:
    """The preset called ``name``."""
    if name not in presets():
        raise UnknownNameError("preset", name, presets())
    return presets()[name]


def find_preset(algo: str, env: str, formation: str | None = None) -> Preset | None:
    """The preset for an algorithm on an environment: the formation's, else one for ``single``, else any."""
    found = [p for p in presets().values() if (p.settings["algo"], p.settings["env"]) == (algo, env)]
    for wanted in (formation, "single"):
        for preset in found:
            if preset.settings.get("formation", "single") == wanted:
                return preset
    return next(iter(found), None)
