"""Settings: frozen dataclasses whose fields carry their help text and the range they must lie in.

@dataclass(frozen=True, kw_only=True)
class MyConfig(Settings):
    clip: float = setting(0.2, "clip range of the probability ratio", 1e-6, 10)
"""

from __future__ import annotations

import dataclasses
import math
from numbers import Real
from typing import Any

from starling.core.errors import ConfigError

__all__ = ["Settings", "help_of", "setting"]

LARGEST = 2**63 - 1  # of whole numbers: what arrays and messages hold


def setting(default: Any, help: str, low: float | None = None, high: float | None = None) -> Any:
    """A field with a default, the sentence that ``--help`` shows for it, and the range of its numbers."""
    metadata = {"help": help, "range": (low, high)}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def help_of(cls: type) -> dict[str, str]:
    """The help of each field that has one."""
    return {f.name: f.metadata["help"] for f in dataclasses.fields(cls) if "help" in f.metadata}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Refuses numbers outside their ranges when it is made, and what ``check`` refuses."""

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):
            low, high = each.metadata.get("range", (None, None))
            value = getattr(self, each.name)
            for number in value if isinstance(value, tuple) else (value,):
                if isinstance(number, Real) and (rule := _broken_rule(number, low, high)):
                    raise ConfigError(f"{each.name}={_shown(value)}; it must be {rule}.")
        self.check()

    def check(self) -> None:
        """Refuse settings that do not go together."""


def _broken_rule(number: Any, low: float | None, high: float | None) -> str:
    """What a number must be and is not; empty where it may be."""
    if not ((low is None or number >= low) and (high is None or number <= high)):
        return _range(low, high)
    if isinstance(number, int):
        return "" if abs(number) <= LARGEST else f"at most {LARGEST:,}, the largest whole number of 64 bits"
    return "" if math.isfinite(number) else "a finite number"


def _shown(value: Any) -> str:
    """A setting as a message can show it: Python writes no whole number of thousands of digits."""
    try:
        return str(value)
    except ValueError:
        return "a number of thousands of digits"


def _range(low: float | None, high: float | None) -> str:
    if high is None:
        return f"at least {low:g}"
    return f"at most {high:g}" if low is None else f"from {low:g} to {high:g}"
