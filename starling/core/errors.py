"""Every error Starling raises on purpose.

    StarlingError
    ├── RequestError            what was asked cannot be done        (exit code 2)
    │   ├── UnknownNameError    no such algorithm, component, key …
    │   ├── ConfigError         a setting out of range or without effect
    │   ├── SpaceError          spaces that do not fit together
    │   ├── MissingExtraError   an optional package is not installed
    │   ├── PluginError         a part from outside that cannot be used
    │   └── RunDirError         the run directory cannot be used
    └── RunError                it started, and then failed          (exit code 1)
        ├── EnvError            the environment broke its promises
        ├── CheckpointError     a checkpoint is missing, torn or foreign
        └── DataError           experience that does not fit its table

Every message says what arrived, the rule, and the remedy.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

__all__ = [
    "CheckpointError",
    "ConfigError",
    "DataError",
    "EnvError",
    "MissingExtraError",
    "PluginError",
    "RequestError",
    "RunDirError",
    "RunError",
    "SpaceError",
    "StarlingError",
    "UnknownNameError",
]


class StarlingError(Exception):
    """Base of all errors raised on purpose."""

    exit_code = 1


class RequestError(StarlingError):
    """What was asked cannot be done."""

    exit_code = 2


class RunError(StarlingError):
    """A run that started, and then failed."""


class ConfigError(RequestError):
    """A setting out of range, or one that has no effect."""


class SpaceError(RequestError):
    """Spaces that do not fit together; ``assembly`` is the graph so far where one was being assembled."""

    def __init__(self, message: str, assembly: Any = None) -> None:
        super().__init__(message)
        self.assembly = assembly


class RunDirError(RequestError):
    """A run directory that is in use, cannot be written, or is not one."""


class PluginError(RequestError):
    """A part from outside that cannot be loaded, is of another kind, or has a name that is taken."""


class EnvError(RunError):
    """An environment that raised, or returned what its spaces forbid."""


class CheckpointError(RunError):
    """A checkpoint that is missing, torn, foreign or malicious."""


class DataError(RunError):
    """Experience that does not fit the table it was offered to."""


class UnknownNameError(RequestError):
    """A name that is not among the known ones; suggests the nearest."""

    def __init__(self, kind: str, name: object, known: Iterable[str], where: str = "") -> None:
        self.kind, self.name, self.known = kind, str(name), sorted(known)
        near = difflib.get_close_matches(self.name, self.known, n=1, cutoff=0.5)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        place = f" in {where}" if where else ""
        super().__init__(f"unknown {kind} {self.name!r}{place}.{hint} Known: {', '.join(self.known) or 'none'}.")


class MissingExtraError(RequestError):
    """An optional package is not installed; names the command that installs it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; run: pip install 'starling-rl[{extra}]'")
