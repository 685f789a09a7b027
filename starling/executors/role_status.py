"""The board: what every role is doing, in shared memory, so that anyone can look while a run goes on."""

from __future__ import annotations

from typing import Any

import numpy as np

from starling.core.segments import Field, Segment
from starling.formations import Formation, RoleId

__all__ = ["Board"]

STOP, CLOSE = 0, 1  # counters of the whole run: roles that learn should stop; all others should go
WORKING, WAITING, DONE = 0, 1, 2


class Board:
    """One line per role, written by the role alone; the supervisor writes the counters and the restarts."""

    def __init__(self, formation: Formation, descriptor: int | None = None) -> None:
        self.roles: list[RoleId] = list(formation)
        self.edges = [edge.name for edge in formation.edges]
        self._lines = {role: i for i, role in enumerate(self.roles)}
        count, edges = len(self.roles), len(self.edges) + 1
        fields: list[Field] = [
            ("sleeping", (count,), "<i8"),  # wants to be woken
            ("state", (count,), "<i8"),
            ("beat", (count,), "<f8"),  # when it last did something, on the monotonic clock
            ("since", (count,), "<f8"),  # when it began to wait or to work
            ("began", (count,), "<f8"),
            ("steps", (count,), "<i8"),
            ("restarts", (count,), "<i8"),
            ("pid", (count,), "<i8"),
            ("waited", (count, edges), "<f8"),  # seconds, by edge; the last column is for what is no edge
            ("passed", (count, edges), "<i8"),  # effects carried out, by edge
            ("busy", (count,), "<f8"),
            ("said", (count, 160), "<u1"),  # what it waits for, in words
        ]
        self.segment = Segment(fields, descriptor)
        self.arrays = self.segment.arrays

    def line(self, role: RoleId) -> int:
        return self._lines[role]

    def column(self, edge: str | None) -> int:
        """The column of an edge, or of the first of several."""
        name = (edge or "").split("|")[0]
        return self.edges.index(name) if name in self.edges else len(self.edges)

    @property
    def stop(self) -> bool:
        return bool(self.segment.counters[STOP])

    @property
    def closed(self) -> bool:
        return bool(self.segment.counters[CLOSE])

    def ask_to_stop(self) -> None:
        self.segment.counters[STOP] = 1

    def close_all(self) -> None:
        self.segment.counters[CLOSE] = 1

    def done(self, role: RoleId) -> bool:
        return bool(self.arrays["state"][self._lines[role]] == DONE)

    def say(self, line: int, text: str) -> None:
        content = text.encode()[:159]
        said = self.arrays["said"][line]
        said[len(content) :] = 0
        said[: len(content)] = np.frombuffer(content, np.uint8)

    def told(self, line: int) -> str:
        return bytes(self.arrays["said"][line]).split(b"\0", 1)[0].decode(errors="replace")

    def snapshot(self, now: float) -> list[dict[str, Any]]:
        """Every line as plain values; seconds of what goes on now are counted in."""
        found = []
        for i, role in enumerate(self.roles):
            a = self.arrays
            state = int(a["state"][i])
            waited = a["waited"][i].tolist()
            busy, going = float(a["busy"][i]), max(0.0, now - float(a["since"][i])) if a["since"][i] else 0.0
            said = self.told(i)
            if state == WAITING:
                waited[self.column(said.split("'")[1] if "'" in said else None)] += going
            elif state == WORKING:
                busy += going
            found.append(
                {
                    "role": str(role),
                    "state": ("working", "waiting", "done")[state],
                    "waits_for": said if state == WAITING else "",
                    "for_seconds": round(going, 3),
                    "silent_seconds": round(max(0.0, now - float(a["beat"][i])), 3) if a["beat"][i] else None,
                    "busy_seconds": round(busy, 3),
                    "waited_seconds": dict(zip([*self.edges, "other"], (round(x, 3) for x in waited))),
                    "passed": dict(zip([*self.edges, "other"], a["passed"][i].tolist())),
                    "steps": int(a["steps"][i]),
                    "restarts": int(a["restarts"][i]),
                    "pid": int(a["pid"][i]),
                }
            )
        return found
