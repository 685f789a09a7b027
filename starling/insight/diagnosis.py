"""What is wrong with a run, or merely slow, and what to change: a pure function of the evidence."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from typing import Any

from starling.executors.waits import Wait
from starling.insight.bottlenecks import bottleneck, limited, other_end
from starling.insight.evidence import Evidence
from starling.insight.findings import (
    Finding,
    last_words,
    lost,
    old,
    silent,
    stalled,
    stuck,
    uneven,
    without_status,
)
from starling.insight.measures import EdgeMeasure, Measures, RoleMeasure, measure

__all__ = ["Diagnosis", "Finding", "diagnose", "how_it_stands"]

RECENT = 20  # reports over which lag is averaged


@dataclass(frozen=True)
class Diagnosis:
    """How a run goes or went."""

    state: str  # in one sentence
    alive: bool
    seconds: float | None = None  # over which shares and rates are taken
    recent: bool = False
    roles: list[RoleMeasure] = field(default_factory=list)
    edges: list[EdgeMeasure] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)  # who waits for whom, now or at the end
    limiter: list[str] = field(default_factory=list)  # what holds buffers back
    lag: dict[str, float] = field(default_factory=dict)
    restarts: dict[str, int] = field(default_factory=dict)
    slowest: str | None = None  # the role that works most of its time
    findings: list[Finding] = field(default_factory=list)

    def to_mapping(self) -> dict[str, Any]:
        """As plain values."""
        roles = [{**asdict(role), "waiting": role.waiting and role.waiting.to_mapping()} for role in self.roles]
        return {**asdict(self), "roles": roles}


def diagnose(evidence: Evidence) -> Diagnosis:
    """What the evidence says."""
    state, alive, lag = how_it_stands(evidence), evidence.alive, _lag(evidence.metrics)
    if evidence.status is None:
        findings = [*without_status(evidence), *stalled(evidence), *last_words(evidence)]
        return Diagnosis(state, alive, lag=lag, findings=findings)
    measures = measure(evidence.status, evidence.before)
    quiet = silent(evidence, measures)
    begun = [role for role in measures.roles if role.silent is not None]
    return Diagnosis(
        state,
        alive,
        seconds=round(measures.seconds, 3),
        recent=measures.recent,
        roles=measures.roles,
        edges=measures.edges,
        waits=_who_waits(measures),
        limiter=[f"{role.role}: {wait.reason}" for role, wait in limited(measures)],
        lag=lag,
        restarts={role.role: role.restarts for role in measures.roles if role.restarts},
        slowest=max(begun, key=lambda role: role.busy).role if begun else None,
        findings=[
            *quiet,
            *lost(evidence, measures),
            *stuck(evidence, measures),
            *([] if quiet else bottleneck(measures, evidence.processors)),  # those who are silent hold up all others
            *([] if quiet else uneven(measures)),
            *old(evidence, measures, lag),
            *([] if quiet else stalled(evidence)),
            *last_words(evidence),
        ],
    )


def how_it_stands(evidence: Evidence) -> str:
    """Whether the run goes on, or how it ended."""
    summary, reached = evidence.summary, _steps(evidence)
    if evidence.alive:
        settings, speed = evidence.settings, _speed(evidence.metrics)
        total = settings.get("updates") or settings.get("steps")
        seconds = (evidence.status or {}).get("seconds") or (evidence.metrics[-1]["seconds"] if evidence.metrics else 0)
        parts = [f"running for {seconds:.0f} s", f"{reached:,} of {total:,} steps" if total else f"{reached:,} steps"]
        parts += [] if speed is None else [f"{speed:,.0f} steps/s"]
        if evidence.status is not None and all(
            role["state"] == "done"
            for role in evidence.status["roles"]
            if role["role"].startswith(f"{evidence.status.get('ends')}-")
        ):
            parts.append("trained to the end: it evaluates")
        return ", ".join(parts)
    ended = summary.get("status")
    if ended is None or (ended != "finished" and reached > int(summary.get("env_steps", 0))):
        return (
            f"dead: no process holds it, and it left no word of its end (killed?) after {reached:,} steps; "
            f"`starling resume {evidence.run}` goes on from its last checkpoint"
        )
    told = f"{ended} after {summary['env_steps']:,} steps in {summary['seconds']:.1f} s"
    told += f" ({summary['env_steps_per_second']:,.0f} steps/s)"
    return told if ended == "finished" else f"{told}; `starling resume {evidence.run}` goes on"


def _steps(evidence: Evidence) -> int:
    reports = [int(row["env_steps"]) for row in evidence.metrics[-1:]]
    roles = [int(role.get("steps", 0)) for role in (evidence.status or {}).get("roles", [])]
    return max([*reports, *roles], default=0)


def _speed(metrics: list[dict[str, Any]]) -> float | None:
    """Steps per second over the last ten seconds or so."""
    if len(metrics) < 2:
        return None
    last = metrics[-1]
    first = next((row for row in metrics if row["seconds"] >= last["seconds"] - 10.0), metrics[0])
    first = metrics[-2] if first is last else first
    return (last["env_steps"] - first["env_steps"]) / max(last["seconds"] - first["seconds"], 1e-9)


def _lag(metrics: list[dict[str, Any]]) -> dict[str, float]:
    """How many updates old experience was of late, and how much was dropped for it."""
    rows = [row for row in metrics[-RECENT:] if "lag_mean" in row]
    if not rows:
        return {}
    return {
        "mean": statistics.fmean(row["lag_mean"] for row in rows),
        "max": max(row["lag_max"] for row in rows),
        "dropped_chunks": float(metrics[-1].get("dropped_chunks", 0.0)),
    }


def _who_waits(measures: Measures) -> list[str]:
    """Who waits for whom and why; roles that wait for the same are told together."""
    groups: dict[tuple[str, Wait], list[RoleMeasure]] = {}
    for role in measures.roles:
        if role.waiting is not None:
            groups.setdefault((role.kind, role.waiting), []).append(role)
    told = []
    for (kind, wait), roles in groups.items():
        who = roles[0].role if len(roles) == 1 else f"{len(roles)} {kind}s ({', '.join(r.role for r in roles[:4])}"
        who += "" if len(roles) == 1 else ", …)" if len(roles) > 4 else ")"
        whom = _whom(kind, wait, measures)
        longest = max(role.for_seconds for role in roles)
        since = f", for {longest:.1f} s" if longest >= 0.1 else ""
        told.append(f"{who} {wait.told_of(len(roles))}{f' → {whom}' if whom else ''}{since}")
    return told


def _whom(kind: str, wait: Wait, measures: Measures) -> str:
    """The kind of role that somebody waits for."""
    edges = [measures.edge(name) for name in wait.edges]
    return " or ".join(dict.fromkeys(other_end(edge, kind) for edge in edges if edge is not None))
