"""What is wrong with a run, or merely slow, and what to change: a pure function of the evidence."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starling.insight.bottlenecks import bottleneck, limited
from starling.insight.evidence import Evidence
from starling.insight.findings import Finding, last_words, lost, old, silent, stalled, stuck, uneven, without_status
from starling.insight.measures import Measures, grouped

__all__ = ["diagnose", "how_it_stands", "to_mapping", "who_waits"]

LEVELS = ("problem", "bottleneck", "note")
LOOKS = (silent, lost, stuck, without_status, old, last_words)
WHILE_ALL_ANSWER = (bottleneck, uneven, stalled)  # who is silent holds up all others: their shares say nothing


def diagnose(evidence: Evidence) -> list[Finding]:
    """What is worth knowing, the gravest first."""
    looks = LOOKS if any(silent(evidence)) else LOOKS + WHILE_ALL_ANSWER
    found = [finding for look in looks for finding in look(evidence)]
    return sorted(found, key=lambda finding: LEVELS.index(finding.level))


def to_mapping(evidence: Evidence) -> dict[str, Any]:
    """All that there is to tell of a run, as plain values."""
    measures, slowest = evidence.measures, evidence.measures.slowest
    return {
        "run": evidence.run,
        "state": how_it_stands(evidence),
        "alive": evidence.alive,
        "seconds": round(measures.seconds, 3),
        "recent": measures.recent,
        "roles": [{**asdict(role), "waiting": role.waiting and role.waiting.to_mapping()} for role in measures.roles],
        "edges": [asdict(edge) for edge in measures.edges],
        "waits": who_waits(measures),
        "limiter": [f"{role}: {wait.reason}" for role, wait in limited(measures).items()],
        "lag": evidence.lag,
        "restarts": measures.restarts,
        "slowest": slowest and slowest.role,
        "findings": [asdict(finding) for finding in diagnose(evidence)],
    }


def how_it_stands(evidence: Evidence) -> str:
    """Whether the run goes on, or how it ended."""
    summary, steps = evidence.summary, evidence.steps
    if evidence.alive:
        total = evidence.settings.get("updates") or evidence.settings.get("steps")
        seconds = (evidence.status or {}).get("seconds") or (evidence.metrics[-1]["seconds"] if evidence.metrics else 0)
        parts = [f"running for {seconds:.0f} s", f"{steps:,} of {total:,} steps" if total else f"{steps:,} steps"]
        parts += [] if evidence.speed is None else [f"{evidence.speed:,.0f} steps/s"]
        return ", ".join(parts + ["trained to the end: it evaluates"] * evidence.measures.ended)
    ended = summary.get("status")
    if ended is None or (ended != "finished" and steps > int(summary.get("env_steps", 0))):
        return (
            f"dead: no process holds it, and it left no word of its end (killed?) after {steps:,} steps; "
            f"`starling resume {evidence.run}` goes on from its last checkpoint"
        )
    told = f"{ended} after {summary['env_steps']:,} steps in {summary['seconds']:.1f} s"
    told += f" ({summary['env_steps_per_second']:,.0f} steps/s)"
    return told if ended == "finished" else f"{told}; `starling resume {evidence.run}` goes on"


def who_waits(measures: Measures) -> list[str]:
    """Who waits for whom and why; roles that wait for the same are told together."""
    told = []
    for (kind, wait), roles in grouped(measures.roles, lambda role: (role.kind, role.waiting)).items():
        if wait is None:
            continue
        names = ", ".join([*(role.role for role in roles[:4]), *(["…"] if len(roles) > 4 else [])])
        who = names if len(roles) == 1 else f"{len(roles)} {kind}s ({names})"
        edges = [edge for name in wait.edges if (edge := measures.edge(name)) is not None]
        whom = " or ".join(dict.fromkeys(edge.other_end(kind) for edge in edges))
        longest = max(role.for_seconds for role in roles)
        since = f", for {longest:.1f} s" if longest >= 0.1 else ""
        told.append(f"{who} {wait.told_of(len(roles))}{f' → {whom}' if whom else ''}{since}")
    return told
