"""Shares and rates from a run's status: how much each role works and waits, how much flows over each edge.

With two statuses, one after the other, they are those of the time between; with one, averages since the run began.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from starling.executors.waits import Wait

__all__ = ["EdgeMeasure", "Measures", "RoleGroup", "RoleMeasure", "measure", "percent"]

NOTHING: Mapping[str, Any] = {"formation": "", "ends": "", "seconds": 0.0, "roles": [], "edges": []}
NO_LANE: Mapping[str, Any] = {"held": 0, "depth": 0, "sent": 0}
WORK = ""  # among the edges that a role's time goes to


@dataclass(frozen=True)
class RoleMeasure:
    """One role."""

    role: str
    kind: str
    busy: float  # share of its time at work
    waits: dict[str, float]  # share of its time spent waiting, by edge
    state: str  # working, waiting or done
    waiting: Wait | None  # for what, where it waits
    for_seconds: float  # that it has been working or waiting
    silent: float | None  # seconds without a sign of life; None: it has not begun
    restarts: int
    rate: float  # items per second that it sends


@dataclass(frozen=True)
class RoleGroup:
    """Roles of one kind that are reported together: their shares are means."""

    kind: str
    roles: list[RoleMeasure]

    def __str__(self) -> str:
        return self.kind if len(self.roles) == 1 else f"{self.kind}s"

    @property
    def busy(self) -> float:
        return fmean(role.busy for role in self.roles)

    @cached_property
    def waits(self) -> dict[str, float]:
        """By edge, the longest first."""
        edges = sorted({edge for role in self.roles for edge in role.waits})
        shares = {edge: fmean(role.waits.get(edge, 0.0) for role in self.roles) for edge in edges}
        return dict(sorted(shares.items(), key=lambda item: -item[1]))


@dataclass(frozen=True)
class EdgeMeasure:
    """One edge, all its lanes together."""

    edge: str
    kind: str
    source: str
    target: str
    rate: float  # items per second
    held: int  # items that wait in it
    room: int  # items that could
    sent: int  # since the run began

    def other_end(self, kind: str) -> str:
        return self.target if self.source == kind else self.source


@dataclass(frozen=True)
class Measures:
    """What a status shows."""

    formation: str
    ends: str
    seconds: float  # over which shares and rates are taken
    recent: bool  # whether that is a time just now, and not the whole run
    roles: list[RoleMeasure]
    edges: dict[str, EdgeMeasure]

    @property
    def ended(self) -> bool:
        """Whether the roles that end the run are done; the others go then."""
        return {role.state for role in self.roles if role.kind == self.ends} == {"done"}

    @property
    def restarts(self) -> dict[str, int]:
        """How often roles were lost, of those that were."""
        return {role.role: role.restarts for role in self.roles if role.restarts}

    @property
    def slowest(self) -> RoleMeasure | None:
        """The role that works most of its time."""
        return max((role for role in self.roles if role.silent is not None), key=lambda role: role.busy, default=None)

    @property
    def limited(self) -> dict[str, Wait]:
        """The buffers that do not take or give at the moment, and what they wait for meanwhile.

        A buffer listens to all who send to it; an edge that it leaves out is held back by its limiter.
        """
        coming = {edge.edge for edge in self.edges.values() if edge.target == "buffer"}
        waits = {role.role: role.waiting for role in self.roles if role.kind == "buffer" and role.waiting is not None}
        return {role: wait for role, wait in waits.items() if coming - set(wait.edges)}

    @cached_property
    def groups(self) -> dict[str, RoleGroup]:
        """The roles by kind."""
        kinds = itertools.groupby(self.roles, key=lambda role: role.kind)
        return {kind: RoleGroup(kind, list(roles)) for kind, roles in kinds}


def measure(status: Mapping[str, Any] | None, before: Mapping[str, Any] | None = None) -> Measures:
    """What a status shows, since an earlier one where there is one of the same run; nothing where there is none."""
    status, past = status or NOTHING, before or NOTHING
    if not 0.0 < past["seconds"] < status["seconds"]:  # nothing was known yet, or the run was resumed in between
        past = NOTHING
    seconds = status["seconds"] - past["seconds"]
    lanes, earlier = _lanes(status), _lanes(past)
    for ends, lane in lanes.items():
        lane["rate"] = max(0, lane["sent"] - earlier.get(ends, NO_LANE)["sent"]) / max(seconds, 1e-9)
    then = {line["role"]: line for line in past["roles"]}
    roles = [_role(line, then.get(line["role"]), lanes.values()) for line in status["roles"]]
    edges = {}
    for name, found in itertools.groupby(lanes.values(), lambda lane: lane["edge"]):
        first, *_ = mine = list(found)
        sums = (sum(lane[part] for lane in mine) for part in ("rate", "held", "depth", "sent"))
        edges[name] = EdgeMeasure(name, first["kind"], kind_of(first["from"]), kind_of(first["to"]), *sums)
    return Measures(status["formation"], status["ends"], seconds, bool(past["roles"]), roles, edges)


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def kind_of(role: str) -> str:
    """``actor`` of ``actor-3``; a kind alone is itself."""
    return re.sub(r"-\d+$", "", role)


def _lanes(status: Mapping[str, Any]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """The lanes of all edges by name and ends; a collective is one, and its members count what goes over it."""
    passed = {kind_of(line["role"]): line["passed"] for line in status["roles"]}
    found = {}
    for lane in status["edges"]:
        sent = lane["published"] if "published" in lane else passed[kind_of(lane["from"])].get(lane["edge"], 0)
        whole = {**NO_LANE, "to": lane["from"], "sent": sent, **lane}
        found[lane["edge"], lane["from"], whole["to"]] = whole
    return found


def _role(line: Mapping[str, Any], then: Mapping[str, Any] | None, lanes: Iterable[dict[str, Any]]) -> RoleMeasure:
    spent, before = ({WORK: each["busy_seconds"], **each["waited_seconds"]} for each in (line, then or line))
    since = {what: seconds - before.get(what, 0.0) for what, seconds in spent.items()}
    if min(since.values()) >= -0.01 and sum(since.values()) > 0.1:  # else it was started again, or just looked at
        spent = since
    total = max(sum(spent.values()), 1e-9)
    shares = {what: max(0.0, seconds) / total for what, seconds in spent.items()}
    return RoleMeasure(
        role=line["role"],
        kind=kind_of(line["role"]),
        busy=shares.pop(WORK),
        waits={edge: share for edge, share in shares.items() if share >= 0.005},
        state=line["state"],
        waiting=Wait.from_mapping(line["waiting"]) if line["waiting"] else None,
        for_seconds=line["for_seconds"],
        silent=line["silent_seconds"],
        restarts=line["restarts"],
        rate=sum(lane["rate"] for lane in lanes if lane["from"] == line["role"] and lane["kind"] == "queue"),
    )
