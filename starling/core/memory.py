"""How much memory there is, asked before it is taken."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from starling.core.errors import ConfigError

__all__ = ["available_memory", "human_bytes", "refuse_if_too_large"]

CGROUPS = Path("/sys/fs/cgroup")
LIMITS = {  # by the controllers of a line of /proc/self/cgroup: where the group lies, limit, usage, what can be freed
    "": ("", "memory.max", "memory.current", "inactive_file"),
    "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def human_bytes(n: float) -> str:
    """1234567 → '1.23 MB'."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(n) < 1000:
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.3g} TB"


def available_memory() -> int | None:
    """Bytes that can be taken without swapping, within the limits of the container; None where nothing tells."""
    return min([*_of_system(), *_of_containers()], default=None)


def _of_system() -> Iterator[int]:
    try:
        fields = dict(line.split(":") for line in _text(Path("/proc/meminfo")).splitlines())
        yield int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, LookupError, ValueError):
        names = getattr(os, "sysconf_names", {})
        if "SC_AVPHYS_PAGES" in names and "SC_PAGE_SIZE" in names:
            yield os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _of_containers(groups: str = "/proc/self/cgroup", root: Path = CGROUPS) -> Iterator[int]:
    """What each control group that this process is in leaves, and each group around it."""
    try:
        lines = [line.split(":", 2) for line in _text(Path(groups)).splitlines()]
    except OSError:
        return
    for _, controllers, path in lines:
        if controllers in LIMITS:
            below, limit, usage, reclaimable = LIMITS[controllers]
            top = root / below
            inner = top / path.lstrip("/")
            for group in (inner, *inner.parents):
                try:
                    statistics = dict(line.split() for line in _text(group / "memory.stat").splitlines())
                    used = int(_text(group / usage)) - int(statistics.get(reclaimable, 0))
                    yield max(0, int(_text(group / limit)) - used)  # "max" is no number, and no limit
                except (OSError, ValueError):
                    pass
                if group == top:
                    break


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def refuse_if_too_large(what: str, parts: Mapping[str, int], remedy: str, available: int | None = None) -> None:
    """Raise ConfigError with the numbers unless the parts fit into memory together."""
    room = available_memory() if available is None else available
    total = sum(parts.values())
    if room is None or total <= room:
        return
    largest = ", ".join(f"{k} {human_bytes(v)}" for k, v in sorted(parts.items(), key=lambda kv: -kv[1])[:4])
    raise ConfigError(f"{what} needs {human_bytes(total)} ({largest}); {human_bytes(room)} is available. {remedy}")
