"""What is wrong with a run, or merely slow, and what to change: pure functions of the evidence.

Each of those that ``diagnose`` calls looks for one thing.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator

from starling.formations import FORMATIONS, form
from starling.insight.bottlenecks import bottleneck
from starling.insight.evidence import Evidence, Finding
from starling.insight.measures import Measures, percent
from starling.records.statistics import recent_lag, recent_speed

__all__ = ["diagnose", "how_it_stands", "who_waits"]

SILENT = 10.0  # seconds without a sign of life that are worth a word
STUCK = 5.0  # seconds that everyone must wait before it looks like a deadlock
OLD = 10.0  # updates that rollouts may lag behind, on average, before it is worth a word
LOST_SHARE = 0.05  # of chunks that may be dropped as too old
LEVELS = ("problem", "bottleneck", "note")


def diagnose(evidence: Evidence) -> list[Finding]:
    """What is worth knowing, the gravest first."""
    looks = [silent, lost, stuck, without_status, old, last_words]
    if not any(silent(evidence)):  # who is silent holds up all others: their shares say nothing
        looks += [bottleneck, uneven, stalled]
    found = [finding for look in looks for finding in look(evidence)]
    return sorted(found, key=lambda finding: LEVELS.index(finding.level))


def how_it_stands(evidence: Evidence) -> str:
    """Whether the run goes on, or how it ended."""
    summary, steps, ended = evidence.summary, evidence.steps, evidence.summary.get("status")
    if evidence.alive:
        total, speed = (
            evidence.settings.get("updates") or evidence.settings.get("steps"),
            recent_speed(evidence.metrics),
        )
        seconds = (evidence.status or {}).get("seconds") or (evidence.metrics[-1]["seconds"] if evidence.metrics else 0)
        parts = [f"running for {seconds:.0f} s", f"{steps:,} of {total:,} steps" if total else f"{steps:,} steps"]
        parts += [] if speed is None else [f"{speed:,.0f} steps/s"]
        return ", ".join(parts + ["trained to the end: it evaluates"] * evidence.measures.ended)
    if ended is None or (ended != "finished" and steps > int(summary.get("env_steps", 0))):
        return (
            f"dead: no process holds it, and it left no word of its end (killed?) after {steps:,} steps; "
            f"`starling resume {evidence.run}` goes on from its last checkpoint"
        )
    ended_as = f"{ended} after {summary['env_steps']:,} steps in {summary['seconds']:.1f} s"
    ended_as += f" ({summary['env_steps_per_second']:,.0f} steps/s)"
    return ended_as if ended == "finished" else f"{ended_as}; `starling resume {evidence.run}` goes on"


def who_waits(measures: Measures) -> list[str]:
    """Who waits for whom and why; roles that wait for the same share a line."""
    lines = []
    for kind, wait in dict.fromkeys((role.kind, role.waiting) for role in measures.roles):
        if wait is None:
            continue
        roles = [role for role in measures.roles if (role.kind, role.waiting) == (kind, wait)]
        names = ", ".join([role.role for role in roles[:4]] + ["…"] * (len(roles) > 4))
        who = names if len(roles) == 1 else f"{len(roles)} {kind}s ({names})"
        edges = [measures.edges[name] for name in wait.edges if name in measures.edges]
        whom = " or ".join(dict.fromkeys(edge.other_end(kind) for edge in edges))
        longest = max(role.for_seconds for role in roles)
        since = f", for {longest:.1f} s" if longest >= 0.1 else ""
        lines.append(f"{who} {wait.text_for(len(roles))}{f' → {whom}' if whom else ''}{since}")
    return lines


def silent(evidence: Evidence) -> Iterator[Finding]:
    """Roles, or the supervisor, that show no sign of life."""
    measures = evidence.measures
    if not evidence.alive or measures.ended:
        return
    if evidence.status_age > SILENT:
        text = f"the supervisor is silent for {evidence.status_age:.0f} s: what is said of the roles is as old"
        yield Finding("problem", "supervisor", text, "look whether its process is stopped")
    for role in measures.roles:
        process, silence = evidence.processes.get(role.role), role.silent or 0.0
        if role.state == "done":
            continue
        if process == "stopped":
            text = f"is stopped by a signal, silent for {silence:.0f} s"
            remedy = "let it go on with `kill -CONT`; the others wait for it"
        elif process == "gone":
            text, remedy = "is gone", "the supervisor starts it again"
        elif role.silent is None and measures.seconds > SILENT and not measures.recent:
            text = f"has not begun after {measures.seconds:.0f} s: it loads and compiles, or cannot"
            remedy = f"see logs/{role.role}.log"
        elif silence > SILENT:
            text = f"is silent for {silence:.0f} s: frozen or in a long computation"
            remedy = "a first update compiles for seconds; otherwise look at its process, or at its environment's step"
        else:
            continue
        yield Finding("problem", "silent", f"{role.role} {text}", remedy)


def lost(evidence: Evidence) -> Iterator[Finding]:
    """Roles that crashed and were started again."""
    for role, times in evidence.measures.restarts.items():
        lines, often = evidence.logs.get(role, []), "once" if times == 1 else f"{times} times"
        remedy = f"see logs/{role}.log" if lines else "its log is empty: it was killed, perhaps for its memory"
        yield Finding("problem", "lost", f"{role} was lost {often}", remedy, lines)


def last_words(evidence: Evidence) -> Iterator[Finding]:
    """What roles wrote before a run failed; those that crashed are reported elsewhere."""
    failed = not evidence.alive and evidence.summary.get("status") not in ("finished", "interrupted")
    for role, lines in evidence.logs.items():
        if failed and role not in evidence.measures.restarts:
            yield Finding("problem", "log", f"{role} wrote at last", f"see logs/{role}.log", lines)


def stuck(evidence: Evidence) -> Iterator[Finding]:
    """Everybody waits for somebody."""
    roles = [role for role in evidence.measures.roles if role.state != "done" and role.kind != "evaluator"]
    seconds = min((role.for_seconds if role.state == "waiting" else 0.0 for role in roles), default=0.0)
    if evidence.alive and seconds >= STUCK:
        text = f"nobody works: every role has waited for another for {seconds:.0f} s or more"
        yield Finding("problem", "stuck", text, "stop the run and resume it; report it with this output: it is a fault")


def stalled(evidence: Evidence) -> Iterator[Finding]:
    """No report for much longer than usual."""
    times = [row["seconds"] for row in evidence.metrics]
    if evidence.alive and len(times) > 2:
        usual = statistics.median(after - before for before, after in itertools.pairwise(times))
        if evidence.metrics_age >= max(SILENT, 10 * usual):
            text = f"no report for {evidence.metrics_age:.0f} s; one came every {usual:.1f} s before"
            yield Finding("problem", "stalled", text, "see who waits for whom; the run may be evaluating, or stuck")


def uneven(evidence: Evidence) -> Iterator[Finding]:
    """An actor that sends much less than its fellows."""
    for kind in ("actor", "worker"):
        roles = [role for role in evidence.measures.roles if role.kind == kind and role.silent is not None]
        usual = statistics.median(role.rate for role in roles) if len(roles) > 2 else 0.0
        for role in roles:
            if role.busy > 0.5 and role.rate < 0.5 * usual:
                text = f"{role.role} is slow: {role.rate:.3g} items/s, its fellows {usual:.3g}"
                harder = "its environments may be in a harder place"
                yield Finding("note", "uneven", text, f"{harder}; where rollouts are joined, all wait for the slowest")


def old(evidence: Evidence) -> Iterator[Finding]:
    """Experience of weights that are long gone, or dropped for that."""
    edge, lag = evidence.measures.edges.get("experience"), recent_lag(evidence.metrics)
    if not lag or edge is None or FORMATIONS[evidence.measures.formation].old:
        return
    share = lag["dropped_chunks"] / max(1, edge.sent)
    if share > LOST_SHARE:
        text = f"{percent(share)} of chunks were dropped as older than max_lag={evidence.settings.get('max_lag')}"
        yield Finding("problem", "lag", text, "raise --max-lag, shorten --queue, or use fewer actors")
    elif lag["mean"] > OLD:
        text = f"experience is {lag['mean']:.0f} updates old on average, {lag['max']:.0f} at most"
        yield Finding("note", "lag", text, "shorten --queue, use fewer actors, or set --max-lag")


def without_status(evidence: Evidence) -> Iterator[Finding]:
    """Nobody noted who waits for whom."""
    formation, executor = evidence.settings.get("formation", "single"), evidence.settings.get("executor", "auto")
    if evidence.status is None and form(formation).fused:
        command = f"starling advise --algo {evidence.manifest['algo']} --env {evidence.manifest['env']}"
        text = "one role acts and learns in turn: nobody waits"
        yield Finding("note", "status", text, f"`{command}` tells whether more roles would help")
    elif evidence.status is None:
        text = f"the roles of {formation} left no notes of who waits for whom (executor {executor})"
        yield Finding("note", "status", text, "run it with --executor processes to see where its time goes")
