"""How much memory there is, asked before it is taken."""

from __future__ import annotations

import os
from collections.abc import Mapping

from starling.core.errors import ConfigError

__all__ = ["available_memory", "human_bytes", "refuse_if_too_large"]


def human_bytes(n: float) -> str:
    """1234567 → '1.23 MB'."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(n) < 1000:
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.3g} TB"


def available_memory() -> int | None:
    """Bytes that can be allocated without swapping; None where the system does not tell."""
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    names = getattr(os, "sysconf_names", {})
    if "SC_AVPHYS_PAGES" in names and "SC_PAGE_SIZE" in names:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def refuse_if_too_large(what: str, parts: Mapping[str, int], remedy: str, available: int | None = None) -> None:
    """Raise ConfigError with the numbers unless the parts fit into memory together."""
    room = available_memory() if available is None else available
    total = sum(parts.values())
    if room is None or total <= room:
        return
    largest = ", ".join(f"{k} {human_bytes(v)}" for k, v in sorted(parts.items(), key=lambda kv: -kv[1])[:4])
    raise ConfigError(f"{what} needs {human_bytes(total)} ({largest}); {human_bytes(room)} is available. {remedy}")
