"""What is worth knowing of a run's roles and of how it goes on: each function looks for one thing."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from starling.formations import FORMATIONS, form
from starling.insight.evidence import Evidence

__all__ = ["Finding", "last_words", "lost", "old", "percent", "silent", "stalled", "stuck", "uneven", "without_status"]

SILENT = 10.0  # seconds without a sign of life that are worth a word
STUCK = 5.0  # seconds that everyone must wait before it looks like a deadlock
OLD = 10.0  # updates that rollouts may lag behind, on average, before it is worth a word
LOST_SHARE = 0.05  # of chunks that may be dropped as too old
HARDER = "its environments may be in a harder place; where rollouts are joined, all wait for the slowest"


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


def without_status(evidence: Evidence) -> Iterator[Finding]:
    """Nobody noted who waits for whom."""
    if evidence.status is not None:
        return
    formation, executor = evidence.settings.get("formation", "single"), evidence.settings.get("executor", "auto")
    if form(formation).fused:
        text = "one role acts and learns in turn: nobody waits"
        remedy = f"`starling advise --algo {evidence.algo} --env {evidence.env}` tells whether more roles would help"
    else:
        text = f"the roles of {formation} left no notes of who waits for whom (executor {executor})"
        remedy = "run it with --executor processes to see where its time goes"
    yield Finding("note", "status", text, remedy)


def stalled(evidence: Evidence) -> Iterator[Finding]:
    """No report for much longer than usual."""
    times = [row["seconds"] for row in evidence.metrics]
    if not evidence.alive or evidence.metrics_age is None or len(times) < 3:
        return
    usual = statistics.median(after - before for before, after in itertools.pairwise(times))
    if evidence.metrics_age >= max(SILENT, 10 * usual):
        text = f"no report for {evidence.metrics_age:.0f} s; one came every {usual:.1f} s before"
        yield Finding("problem", "stalled", text, "see who waits for whom; the run may be evaluating, or stuck")


def last_words(evidence: Evidence) -> Iterator[Finding]:
    """What roles wrote before a run failed; those that were lost are told of elsewhere."""
    if evidence.alive or evidence.summary.get("status") in ("finished", "interrupted"):
        return
    for role, lines in evidence.logs.items():
        if role not in evidence.measures.restarts:
            yield Finding("problem", "log", f"{role} wrote at last", f"see logs/{role}.log", lines)


def silent(evidence: Evidence) -> Iterator[Finding]:
    """Roles, or the supervisor, that show no sign of life."""
    measures = evidence.measures
    if not evidence.alive or measures.ended:
        return
    if (evidence.status_age or 0.0) > SILENT:
        text = f"the supervisor is silent for {evidence.status_age:.0f} s: what is said of the roles is as old"
        yield Finding("problem", "supervisor", text, "look whether its process is stopped")
    for role in measures.roles:
        process = evidence.processes.get(role.role)
        if role.state == "done":
            continue
        if process == "stopped":
            text = f"is stopped by a signal, silent for {role.silent or 0:.0f} s"
            remedy = "let it go on with `kill -CONT`; the others wait for it"
        elif process == "gone":
            text, remedy = "is gone", "the supervisor starts it again"
        elif role.silent is None and measures.seconds > SILENT and not measures.recent:
            text = f"has not begun after {measures.seconds:.0f} s: it loads and compiles, or cannot"
            remedy = f"see logs/{role.role}.log"
        elif (role.silent or 0.0) > SILENT:
            text = f"is silent for {role.silent:.0f} s: frozen or in a long computation"
            remedy = "a first update compiles for seconds; otherwise look at its process, or at its environment's step"
        else:
            continue
        yield Finding("problem", "silent", f"{role.role} {text}", remedy)


def lost(evidence: Evidence) -> Iterator[Finding]:
    """Roles that crashed and were started again."""
    for role, times in evidence.measures.restarts.items():
        lines = evidence.logs.get(role, [])
        remedy = f"see logs/{role}.log" if lines else "its log is empty: it was killed, perhaps for its memory"
        often = "once" if times == 1 else f"{times} times"
        yield Finding("problem", "lost", f"{role} was lost {often}", remedy, lines)


def stuck(evidence: Evidence) -> Iterator[Finding]:
    """Everybody waits for somebody."""
    roles = [role for role in evidence.measures.roles if role.state != "done" and role.kind != "evaluator"]
    if evidence.alive and roles and all(role.state == "waiting" and role.for_seconds >= STUCK for role in roles):
        seconds = min(role.for_seconds for role in roles)
        text = f"nobody works: every role has waited for another for {seconds:.0f} s or more"
        yield Finding("problem", "stuck", text, "stop the run and resume it; report it with this output: it is a fault")


def uneven(evidence: Evidence) -> Iterator[Finding]:
    """An actor that sends much less than its fellows."""
    for group in evidence.measures.groups.values():
        roles = [role for role in group.roles if role.silent is not None]
        if group.kind not in ("actor", "worker") or len(roles) < 3:
            continue
        usual = statistics.median(role.rate for role in roles)
        for role in roles:
            if role.busy > 0.5 and role.rate < 0.5 * usual:
                text = f"{role.role} is slow: {role.rate:.3g} items/s, its fellows {usual:.3g}"
                yield Finding("note", "uneven", text, HARDER)


def old(evidence: Evidence) -> Iterator[Finding]:
    """Experience of weights that are long gone, or dropped for that."""
    edge, lag = evidence.measures.edge("experience"), evidence.lag
    if not lag or edge is None or FORMATIONS[evidence.measures.formation].old:
        return
    share = lag["dropped_chunks"] / max(1, edge.sent)
    if share > LOST_SHARE:
        text = f"{percent(share)} of chunks were dropped as older than max_lag={evidence.settings.get('max_lag')}"
        yield Finding("problem", "lag", text, "raise --max-lag, shorten --queue, or use fewer actors")
    elif lag["mean"] > OLD:
        text = f"experience is {lag['mean']:.0f} updates old on average, {lag['max']:.0f} at most"
        yield Finding("note", "lag", text, "shorten --queue, use fewer actors, or set --max-lag")
