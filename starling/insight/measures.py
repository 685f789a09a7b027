"""Shares and rates from a run's status: how much each role works and waits, how much flows over each edge.

With two statuses, one after the other, they are those of the time between; with one, averages since the run began.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starling.executors.waits import Wait

__all__ = ["EdgeMeasure", "Kind", "Measures", "RoleMeasure", "measure"]


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
class EdgeMeasure:
    """One edge, all its lanes together."""

    edge: str
    kind: str
    source: str
    target: str
    rate: float | None  # items per second; None: nobody counts
    held: int  # items that wait in it
    room: int  # items that could
    sent: int  # since the run began


@dataclass(frozen=True)
class Kind:
    """The roles of one kind together."""

    kind: str
    count: int
    busy: float
    waits: dict[str, float]
    busiest: str  # the role that works most

    def longest_wait(self) -> tuple[str, float]:
        """The edge that they wait for most, and for how much of their time; nothing where they do not wait."""
        return max(self.waits.items(), key=lambda item: item[1], default=("", 0.0))


@dataclass(frozen=True)
class Measures:
    """What a status shows."""

    formation: str
    ends: str
    seconds: float  # over which shares and rates are taken
    recent: bool  # whether that is a time just now, and not the whole run
    roles: list[RoleMeasure]
    edges: list[EdgeMeasure]

    def kinds(self) -> dict[str, Kind]:
        found: dict[str, list[RoleMeasure]] = {}
        for role in self.roles:
            found.setdefault(role.kind, []).append(role)
        return {kind: _joined(kind, roles) for kind, roles in found.items()}

    def edge(self, name: str) -> EdgeMeasure | None:
        return next((edge for edge in self.edges if edge.edge == name), None)


def measure(status: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> Measures:
    """What a status shows, since an earlier one where there is one of the same run."""
    seconds = float(status.get("seconds", 0.0))
    past: Mapping[str, Any] = before or {}
    if not 0.0 < float(past.get("seconds", 0.0)) < seconds:  # none, or the run was resumed in between
        past = {}
    seconds -= float(past.get("seconds", 0.0))
    then = {role["role"]: role for role in past.get("roles", [])}
    lanes = {(lane["edge"], lane["from"], lane.get("to")): _moved(lane) for lane in past.get("edges", [])}
    rates = [
        (lane, max(0, _moved(lane) - lanes.get((lane["edge"], lane["from"], lane.get("to")), 0)) / max(seconds, 1e-9))
        for lane in status["edges"]
    ]
    roles = [_role(role, then.get(role["role"]), rates) for role in status["roles"]]
    edges = [_edge(name, rates, status["roles"], then, seconds) for name in _names(status["edges"])]
    formation, ends = str(status.get("formation", "")), str(status.get("ends", "learner"))
    return Measures(formation, ends, seconds, bool(past), roles, edges)


def kind_of(role: str) -> str:
    """``actor`` of ``actor-3``; a kind alone is itself."""
    return re.sub(r"-+\d+$", "", role)


def _moved(lane: Mapping[str, Any]) -> int:
    return int(lane.get("sent", lane.get("published", 0)))


def _names(lanes: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(lane["edge"] for lane in lanes))


def _role(
    role: Mapping[str, Any], then: Mapping[str, Any] | None, rates: list[tuple[dict[str, Any], float]]
) -> RoleMeasure:
    busy, waited = float(role["busy_seconds"]), dict(role["waited_seconds"])
    if then is not None:
        since = busy - float(then["busy_seconds"])
        waits = {edge: x - float(then["waited_seconds"].get(edge, 0.0)) for edge, x in waited.items()}
        if since >= -0.01 and min(waits.values(), default=0.0) >= -0.01 and since + sum(waits.values()) > 0.1:
            busy, waited = max(0.0, since), {edge: max(0.0, x) for edge, x in waits.items()}
    total = max(busy + sum(waited.values()), 1e-9)
    return RoleMeasure(
        role=role["role"],
        kind=kind_of(role["role"]),
        busy=busy / total,
        waits={edge: x / total for edge, x in waited.items() if x / total >= 0.005},
        state=role["state"],
        waiting=Wait.from_mapping(role["waiting"]) if role.get("waiting") else None,
        for_seconds=float(role["for_seconds"]),
        silent=role["silent_seconds"],
        restarts=int(role["restarts"]),
        rate=sum(rate for lane, rate in rates if lane["from"] == role["role"] and lane["kind"] == "queue"),
    )


def _edge(
    name: str,
    rates: list[tuple[dict[str, Any], float]],
    roles: list[dict[str, Any]],
    then: Mapping[str, Mapping[str, Any]],
    seconds: float,
) -> EdgeMeasure:
    mine = [(lane, rate) for lane, rate in rates if lane["edge"] == name]
    first = mine[0][0]
    source = kind_of(first["from"])
    rate: float | None = sum(rate for _, rate in mine)
    if first["kind"] == "collective":  # counted by its members: each passes it once a round
        one = next((role for role in roles if kind_of(role["role"]) == source), None)
        rate = None
        if one is not None:
            earlier = then.get(one["role"], {}).get("passed", {}).get(name, 0)
            rate = max(0, one["passed"].get(name, 0) - earlier) / max(seconds, 1e-9)
    held, room = (sum(int(lane.get(key, 0)) for lane, _ in mine) for key in ("held", "depth"))
    sent = sum(_moved(lane) for lane, _ in mine)
    return EdgeMeasure(name, first["kind"], source, kind_of(first.get("to", source)), rate, held, room, sent)


def _joined(kind: str, roles: list[RoleMeasure]) -> Kind:
    edges = {edge for role in roles for edge in role.waits}
    waits = {edge: sum(role.waits.get(edge, 0.0) for role in roles) / len(roles) for edge in sorted(edges)}
    busiest = max(roles, key=lambda role: role.busy)
    return Kind(kind, len(roles), sum(role.busy for role in roles) / len(roles), waits, busiest.role)
