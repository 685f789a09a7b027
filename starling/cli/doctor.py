"""``starling doctor``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import tyro

from starling.core.errors import ConfigError
from starling.insight.diagnosis import diagnose, how_it_stands, who_waits
from starling.insight.evidence import Evidence, gather
from starling.insight.measures import EdgeMeasure, Measures, RoleGroup, percent
from starling.records.statistics import recent_lag

__all__ = ["doctor", "to_mapping"]

EVERY = 1.0  # seconds between looks while watching
SINGLY = 4  # roles of a kind that get a line each
_SIGNS = {"problem": "✗", "bottleneck": "▲", "note": "·"}


@dataclass(frozen=True)
class DoctorArguments:
    """Tell who waits for whom in a run, alive or dead, and what to change."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]  # a run directory, or its name below runs/
    seconds: float = 2.0  # to look at a live run for, so that rates are those of now; 0: averages since it began
    json: bool = False  # print JSON
    watch: bool = False  # look again every second, until the run ends


def doctor(args: list[str]) -> int:
    """Explain how a run goes, or went."""
    arguments = tyro.cli(DoctorArguments, args=args, prog="starling doctor")
    if not 0 <= arguments.seconds <= 3600:
        raise ConfigError(f"seconds={arguments.seconds}; it must be from 0 to 3600.")
    evidence = gather(arguments.run)
    if evidence.alive and evidence.status is not None and arguments.seconds and not arguments.watch:
        time.sleep(arguments.seconds)
        evidence = gather(arguments.run, evidence.status)
    _show(evidence, arguments.json)
    while arguments.watch and evidence.alive:
        time.sleep(EVERY)
        evidence = gather(arguments.run, evidence.status)
        if not arguments.json:
            print("\033[2J\033[H" if sys.stdout.isatty() else "")
        _show(evidence, arguments.json)
    return 0


def _show(evidence: Evidence, as_json: bool) -> None:
    print(json.dumps(to_mapping(evidence)) if as_json else report(evidence), flush=True)


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
        "edges": [asdict(edge) for edge in measures.edges.values()],
        "waits": who_waits(measures),
        "limiter": [f"{role}: {wait.reason}" for role, wait in measures.limited.items()],
        "lag": recent_lag(evidence.metrics),
        "restarts": measures.restarts,
        "slowest": slowest and slowest.role,
        "findings": [asdict(finding) for finding in diagnose(evidence)],
    }


def report(evidence: Evidence) -> str:
    """How a run goes or went, for a reader."""
    measures, formation = evidence.measures, evidence.settings.get("formation", "single")
    what = f"{evidence.manifest['algo']} on {evidence.manifest['env']}"
    lines = [f"{what}, {formation}: {how_it_stands(evidence)}"]
    if evidence.status is not None and not evidence.alive:
        lines.append(f"last seen {_ago(evidence.status_age)} ago; shares and rates are averages of the whole run")
    elif evidence.status is not None:
        over = f"the last {measures.seconds:.1f} s" if measures.recent else f"all {measures.seconds:.0f} s so far"
        lines.append(f"shares and rates are of {over}")
    if measures.roles:
        lines += ["", *_roles(measures)]
    if measures.edges:
        lines += ["", *_edges(measures.edges.values())]
    if waits := who_waits(measures):
        lines += ["", "who waits for whom" if evidence.alive else "who waited for whom at the end"]
        lines += [f"  {line}" for line in waits]
    if facts := _facts(evidence):
        lines += ["", *facts]
    findings = diagnose(evidence)
    lines += [""] * bool(findings)
    for finding in findings:
        lines.append(f"{_SIGNS[finding.level]} {finding.text}")
        lines += [f"    {finding.remedy}"] * bool(finding.remedy)
        lines += [f"    | {line}" for line in finding.lines]
    return "\n".join(lines)


def _facts(evidence: Evidence) -> list[str]:
    """Limiter, lag, restarts and the slowest role, as far as there is something to say of them."""
    measures, lag, slowest = evidence.measures, recent_lag(evidence.metrics), evidence.measures.slowest
    facts = [f"limiter   {role}: {wait.reason}" for role, wait in list(measures.limited.items())[:SINGLY]]
    if lag:
        said = f"lag       {lag['mean']:.1f} updates on average, {lag['max']:.0f} at most"
        facts.append(f"{said}; {lag['dropped_chunks']:,.0f} chunks dropped")
    if measures.roles:
        lost = ", ".join(f"{role} {times} ×" for role, times in measures.restarts.items())
        facts.append(f"restarts  {lost or 'none'}")
    if slowest is not None:
        facts.append(f"slowest   {slowest.role}, at work {percent(slowest.busy)} of its time")
    return facts


def _roles(measures: Measures) -> list[str]:
    """A line for each role, or for each kind where there are many; the edges that they wait for beside it."""
    rows: list[tuple[str, ...]] = []
    for kind, whole in measures.groups.items():
        many = len(whole.roles) > SINGLY
        for group in [whole] if many else [RoleGroup(kind, [role]) for role in whole.roles]:
            states = [role.state for role in group.roles]
            now = f"{states.count('working')} working, {states.count('waiting')} waiting" if many else states[0]
            waits = ", ".join(f"{edge} {percent(share)}" for edge, share in group.waits.items())
            name = f"{kind} × {len(states)}" if many else group.roles[0].role
            rows.append((name, percent(group.busy), now, waits or "—"))
    return _table(("role", "busy", "now", "waits for"), rows, right=(1,))


def _edges(edges: Iterable[EdgeMeasure]) -> list[str]:
    rows: list[tuple[str, ...]] = []
    for edge in edges:
        held = f"{edge.held} of {edge.room}" if edge.room else "—"
        rows.append((edge.edge, edge.kind, f"{edge.source} → {edge.target}", f"{edge.rate:,.1f}/s", held))
    return _table(("edge", "kind", "from → to", "rate", "held"), rows, right=(3, 4))


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]], right: tuple[int, ...]) -> list[str]:
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    return [
        "  ".join(
            f"{cell:>{w}}" if i in right else f"{cell:<{w}}" for i, (cell, w) in enumerate(zip(row, widths))
        ).rstrip()
        for row in (heads, *rows)
    ]


def _ago(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
