"""``starling doctor``."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from typing import Annotated

import tyro

from starling.core.errors import ConfigError
from starling.insight.diagnosis import Diagnosis, diagnose
from starling.insight.evidence import Evidence, gather
from starling.insight.measures import EdgeMeasure, RoleMeasure

__all__ = ["doctor"]

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
    diagnosis = diagnose(evidence)
    if as_json:
        print(json.dumps({"run": evidence.run, **diagnosis.to_mapping()}), flush=True)
    else:
        print(report(evidence, diagnosis), flush=True)


def report(evidence: Evidence, diagnosis: Diagnosis) -> str:
    """A diagnosis for a reader."""
    formation = evidence.settings.get("formation", "single")
    lines = [f"{evidence.algo} on {evidence.env}, {formation}: {diagnosis.state}"]
    if evidence.status is not None and not evidence.alive:
        lines.append(
            f"last seen {_ago(evidence.status_age or 0.0)} ago; shares and rates are averages of the whole run"
        )
    elif diagnosis.seconds is not None:
        over = f"the last {diagnosis.seconds:.1f} s" if diagnosis.recent else f"all {diagnosis.seconds:.0f} s so far"
        lines.append(f"shares and rates are of {over}")
    if diagnosis.roles:
        lines += ["", *_roles(diagnosis.roles)]
    if diagnosis.edges:
        lines += ["", *_edges(diagnosis.edges)]
    if diagnosis.waits:
        lines += ["", "who waits for whom" if diagnosis.alive else "who waited for whom at the end"]
        lines += [f"  {line}" for line in diagnosis.waits]
    facts = _facts(diagnosis)
    lines += ["", *facts] if facts else []
    if diagnosis.findings:
        lines.append("")
    for finding in diagnosis.findings:
        lines.append(f"{_SIGNS[finding.level]} {finding.text}")
        lines += [f"    {finding.remedy}"] * bool(finding.remedy)
        lines += [f"    | {line}" for line in finding.lines]
    return "\n".join(lines)


def _facts(diagnosis: Diagnosis) -> list[str]:
    """Limiter, lag, restarts and the slowest role, as far as there is something to say of them."""
    lag = diagnosis.lag
    facts = [f"limiter   {line}" for line in diagnosis.limiter[:SINGLY]]
    if lag:
        said = f"lag       {lag['mean']:.1f} updates on average, {lag['max']:.0f} at most"
        facts.append(f"{said}; {lag['dropped_chunks']:,.0f} chunks dropped")
    if diagnosis.roles:
        lost = ", ".join(f"{role} {times} ×" for role, times in diagnosis.restarts.items())
        facts.append(f"restarts  {lost or 'none'}")
    if diagnosis.slowest:
        busy = next(role.busy for role in diagnosis.roles if role.role == diagnosis.slowest)
        facts.append(f"slowest   {diagnosis.slowest}, at work {100 * busy:.0f} % of its time")
    return facts


def _roles(roles: list[RoleMeasure]) -> list[str]:
    """A line for each role, or for each kind where there are many; the edges that they wait for beside it."""
    groups: dict[str, list[RoleMeasure]] = {}
    for role in roles:
        groups.setdefault(role.kind, []).append(role)
    rows: list[tuple[str, ...]] = []
    for kind, members in groups.items():
        for some in [[role] for role in members] if len(members) <= SINGLY else [members]:
            names = {edge for role in some for edge in role.waits}
            waits = {edge: sum(role.waits.get(edge, 0.0) for role in some) / len(some) for edge in names}
            said = ", ".join(f"{edge} {100 * x:.0f} %" for edge, x in sorted(waits.items(), key=lambda item: -item[1]))
            busy = sum(role.busy for role in some) / len(some)
            does = [role.state for role in some]
            now = does[0] if len(some) == 1 else f"{does.count('working')} working, {does.count('waiting')} waiting"
            name = some[0].role if len(some) == 1 else f"{kind} × {len(some)}"
            rows.append((name, f"{100 * busy:.0f} %", now, said or "—"))
    return _table(("role", "busy", "now", "waits for"), rows, right=(1,))


def _edges(edges: list[EdgeMeasure]) -> list[str]:
    rows: list[tuple[str, ...]] = []
    for edge in edges:
        rate = "" if edge.rate is None else f"{edge.rate:,.1f}/s"
        held = f"{edge.held} of {edge.room}" if edge.room else "—"
        rows.append((edge.edge, edge.kind, f"{edge.source} → {edge.target}", rate, held))
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
