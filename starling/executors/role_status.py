"""What every role is doing, in shared memory, so that anyone can look while a run goes on."""

from __future__ import annotations

from typing import Any

import numpy as np

from starling.core.segments import Field, Segment
from starling.executors.waits import KINDS, Wait
from starling.formations import Formation, RoleId

__all__ = ["DONE", "WAITING", "WORKING", "RoleStatus"]

STOP, CLOSE = 0, 1  # counters of the whole run: roles that learn should stop; all others should go
WORKING, WAITING, DONE = 0, 1, 2
LONGEST = 120  # bytes of a reason


class RoleStatus:
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
            ("wait", (count, 5), "<f8"),  # a Wait: its kind, sender, receiver, wanted, seconds (NaN: none)
            ("wait edges", (count, edges), "<i8"),  # the columns of its edges, from 1; 0: no further one
            ("wait reason", (count,), f"S{LONGEST}"),
        ]
        self.segment = Segment(fields, descriptor)
        self.arrays = self.segment.arrays

    def line(self, role: RoleId) -> int:
        return self._lines[role]

    def column(self, edge: str | None) -> int:
        """The column of an edge, or of what is no edge."""
        return self.edges.index(edge) if edge is not None else len(self.edges)

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

    def set_wait(self, line: int, wait: Wait) -> None:
        """Note what a role waits for."""
        numbers = (wait.sender, wait.receiver, wait.wanted, wait.seconds)
        self.arrays["wait"][line] = [KINDS.index(wait.effect), *(np.nan if n is None else n for n in numbers)]
        columns = [1 + self.column(edge) for edge in dict.fromkeys(wait.edges)]
        self.arrays["wait edges"][line] = columns + [0] * (len(self.edges) + 1 - len(columns))
        self.arrays["wait reason"][line] = wait.reason.encode()

    def wait(self, line: int) -> Wait:
        """What a role waits for, where it does."""
        kind, *numbers, seconds = self.arrays["wait"][line].tolist()
        sender, receiver, wanted = (None if np.isnan(number) else int(number) for number in numbers)
        edges = tuple(self.edges[column - 1] for column in self.arrays["wait edges"][line].tolist() if column)
        reason = self.arrays["wait reason"][line].decode(errors="replace")
        limit = None if np.isnan(seconds) else seconds
        return Wait(KINDS[int(kind)], edges, sender, receiver, wanted, limit, reason)

    def snapshot(self, now: float) -> list[dict[str, Any]]:
        """Every line as plain values; seconds of what goes on now are counted in."""
        return [self._line_at(i, role, now) for i, role in enumerate(self.roles)]

    def _line_at(self, i: int, role: RoleId, now: float) -> dict[str, Any]:
        a, names = self.arrays, [*self.edges, "other"]
        state, waited, busy = int(a["state"][i]), a["waited"][i].tolist(), float(a["busy"][i])
        going = max(0.0, now - float(a["since"][i])) if a["since"][i] else 0.0
        wait = self.wait(i) if state == WAITING else None
        if wait is not None:
            waited[self.column(wait.edge)] += going
        elif state == WORKING:
            busy += going
        return {
            "role": str(role),
            "state": ("working", "waiting", "done")[state],
            "waiting": None if wait is None else wait.to_mapping(),
            "for_seconds": round(going, 3),
            "silent_seconds": round(max(0.0, now - float(a["beat"][i])), 3) if a["beat"][i] else None,
            "busy_seconds": round(busy, 3),
            "waited_seconds": dict(zip(names, (round(x, 3) for x in waited))),
            "passed": dict(zip(names, a["passed"][i].tolist())),
            "steps": int(a["steps"][i]),
            "restarts": int(a["restarts"][i]),
            "pid": int(a["pid"][i]),
        }
