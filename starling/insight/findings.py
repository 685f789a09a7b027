"""What is worth knowing of a run's roles and of how it goes on: each function looks for one thing."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from starling.formations import FORMATIONS, form
from starling.insight.evidence import Evidence
from starling.insight.measures import Measures

__all__ = ["Finding", "last_words", "lost", "old", "percent", "silent", "stalled", "stuck", "uneven", "without_status"]

SILENT = 10.0  # seconds without a sign of life that are worth a word
STUCK = 5.0  # seconds that everyone must wait before it looks like a deadlock
OLD = 10.0  # updates that rollouts may lag behind, on average, before it is worth a word
LOST_SHARE = 0.05  # of chunks that may be dropped as too old


@dataclass(frozen=True)
class Finding:
    """Something worth knowing: what was seen, and what to do about it."""

    level: Literal["problem", "bottleneck", "note"]
    subject: str  # silent, lost, stuck, limiter, learner, actor …
    text: str
    remedy: str = ""
    lines: list[str] = field(default_factory=list)  # of a log


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def without_status(evidence: Evidence) -> list[Finding]:
    formation, executor = evidence.settings.get("formation", "single"), evidence.settings.get("executor", "auto")
    if form(formation, evidence.counts).fused:
        text = "one role acts and learns in turn: nobody waits"
        remedy = f"`starling advise --algo {evidence.algo} --env {evidence.env}` tells whether more roles would help"
    else:
        text = f"the roles of {formation} left no notes of who waits for whom (executor {executor})"
        remedy = "run it with --executor processes to see where its time goes"
    return [Finding("note", "status", text, remedy)]


def stalled(evidence: Evidence) -> list[Finding]:
    """No report for much longer than usual."""
    times = [row["seconds"] for row in evidence.metrics]
    if not evidence.alive or evidence.metrics_age is None or len(times) < 3:
        return []
    usual = statistics.median(after - before for before, after in itertools.pairwise(times))
    if evidence.metrics_age < max(SILENT, 10 * usual):
        return []
    text = f"no report for {evidence.metrics_age:.0f} s; one came every {usual:.1f} s before"
    return [Finding("problem", "stalled", text, "see who waits for whom; the run may be evaluating, or stuck")]


def last_words(evidence: Evidence) -> list[Finding]:
    """What roles wrote before a run failed; those that were lost are told of elsewhere."""
    if evidence.alive or evidence.summary.get("status") in ("finished", "interrupted"):
        return []
    gone = {role["role"] for role in (evidence.status or {}).get("roles", []) if role["restarts"]}
    return [
        Finding("problem", "log", f"{role} wrote at last", f"see logs/{role}.log", lines)
        for role, lines in evidence.logs.items()
        if role not in gone
    ]


def silent(evidence: Evidence, measures: Measures) -> list[Finding]:
    """Roles, or the supervisor, that show no sign of life."""
    found: list[Finding] = []
    if not evidence.alive:
        return found
    done = any(role.kind == measures.ends and role.state == "done" for role in measures.roles)
    if (evidence.status_age or 0.0) > SILENT and not done:
        text = f"the supervisor is silent for {evidence.status_age:.0f} s: what is said of the roles is as old"
        found.append(Finding("problem", "supervisor", text, "look whether its process is stopped"))
    for role in measures.roles:
        if role.state == "done":
            continue
        process = evidence.processes.get(role.role)
        if process == "stopped":
            text = f"{role.role} is stopped by a signal, silent for {role.silent or 0:.0f} s"
            found.append(Finding("problem", "silent", text, "let it go on with `kill -CONT`; the others wait for it"))
        elif process == "gone":
            found.append(Finding("problem", "silent", f"{role.role} is gone", "the supervisor starts it again"))
        elif role.silent is None:
            if measures.seconds > SILENT and not measures.recent:
                text = f"{role.role} has not begun after {measures.seconds:.0f} s: it loads and compiles, or cannot"
                found.append(Finding("problem", "silent", text, f"see logs/{role.role}.log"))
        elif role.silent > SILENT:
            text = f"{role.role} is silent for {role.silent:.0f} s: frozen or in a long computation"
            remedy = "a first update compiles for seconds; otherwise look at its process, or at its environment's step"
            found.append(Finding("problem", "silent", text, remedy))
    return found


def lost(evidence: Evidence, measures: Measures) -> list[Finding]:
    found = []
    for role in measures.roles:
        if role.restarts:
            often = "once" if role.restarts == 1 else f"{role.restarts} times"
            lines = evidence.logs.get(role.role, [])
            remedy = f"see logs/{role.role}.log" if lines else "its log is empty: it was killed, perhaps for its memory"
            found.append(Finding("problem", "lost", f"{role.role} was lost {often}", remedy, lines))
    return found


def stuck(evidence: Evidence, measures: Measures) -> list[Finding]:
    roles = [role for role in measures.roles if role.state != "done" and role.kind != "evaluator"]
    if not evidence.alive or not roles or any(r.state != "waiting" or r.for_seconds < STUCK for r in roles):
        return []
    seconds = min(role.for_seconds for role in roles)
    text = f"nobody works: every role has waited for another for {seconds:.0f} s or more"
    return [Finding("problem", "stuck", text, "stop the run and resume it; report it with this output: it is a fault")]


def uneven(measures: Measures) -> list[Finding]:
    """An actor that sends much less than its fellows."""
    found = []
    for kind in ("actor", "worker"):
        roles = [role for role in measures.roles if role.kind == kind and role.silent is not None]
        usual = statistics.median([role.rate for role in roles]) if len(roles) >= 3 else 0.0
        for role in roles:
            if role.busy > 0.5 and role.rate < 0.5 * usual:
                text = f"{role.role} is slow: {role.rate:.3g} items/s, its fellows {usual:.3g}"
                remedy = (
                    "its environments may be in a harder place; where rollouts are joined, all wait for the slowest"
                )
                found.append(Finding("note", "uneven", text, remedy))
    return found


def old(evidence: Evidence, measures: Measures, lag: Mapping[str, float]) -> list[Finding]:
    edge, most = measures.edge("experience"), evidence.settings.get("max_lag")
    if not lag or edge is None or FORMATIONS[measures.formation].old:
        return []
    share = lag["dropped_chunks"] / max(1, edge.sent)
    if share > LOST_SHARE:
        text = f"{percent(share)} of chunks were dropped as older than max_lag={most}"
        return [Finding("problem", "lag", text, "raise --max-lag, shorten --queue, or use fewer actors")]
    if lag["mean"] > OLD:
        text = f"experience is {lag['mean']:.0f} updates old on average, {lag['max']:.0f} at most"
        return [Finding("note", "lag", text, "shorten --queue, use fewer actors, or set --max-lag")]
    return []
