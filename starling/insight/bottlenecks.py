"""Which roles hold up the others, and what to change.

The bottleneck is found by walking: from the roles that end the run, to those that they mostly wait for, and so on,
until one is met that mostly works. Where the walk comes back to where it was, the roles take turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from starling.formations import FORMATIONS
from starling.insight.evidence import Evidence, Finding
from starling.insight.measures import EdgeMeasure, Measures, percent

__all__ = ["bottleneck"]

TURNS = 0.25  # share of their time that each of two kinds must wait for the other to be said to take turns
BLOCKED = 0.1  # share of their time that others must wait for a bottleneck to be named with it
_REMEDIES = {  # by kind, where the formation knows no better
    "actor": "more actors, or more environments per actor",
    "worker": "more workers (--actors), or more environments per worker",
    "buffer": "more buffers (--buffers), or larger chunks",
    "inference": "more environments per actor, so that a request carries more rows; a larger --inference-batch; "
    "or the other --act-backend",
    "learner": "larger batches, or the other --backend",
}
_TURNS = {  # where each waits for the other
    "turns": "nobody may run ahead here; where the algorithm corrects for lag, --formation actor_learner lets actors "
    "go on; or make batches larger, so that turns change less often",
    "inference": "the way there and back costs more than the network: more environments per actor, more actors, or a "
    "shorter --inference-wait",
}
_NO_ACTORS = "more environments per actor; more actors will not help, since all processors are taken"
_NO_ROLES = "larger batches, or fewer actors, which leave it more of the processors: all are taken"
_FULL = {"actor": _NO_ACTORS, "worker": _NO_ACTORS, "learner": _NO_ROLES, "server": _NO_ROLES}  # more would not help


def bottleneck(evidence: Evidence) -> Iterator[Finding]:
    """Who holds up the run, what the buffers' limiter does, and whether processors are short."""
    whole, processors = evidence.measures, evidence.processors
    measures = replace(whole, roles=[role for role in whole.roles if role.kind != "evaluator"])  # nobody waits for it
    groups, formation = measures.groups, measures.formation
    if len(groups) < 2 or any(role.silent is None for role in measures.roles):
        return
    wanted = sum(role.busy for role in whole.roles)
    full = wanted > 0.95 * processors and len(whole.roles) > processors
    *turns, last = _walk(measures)
    slow = groups[last]
    if len(turns) > 1:
        subject = "inference" if set(turns) == {"actor", "inference"} else "turns"
        shares = " and ".join(f"{groups[kind]} {percent(groups[kind].busy)} busy" for kind in turns)
        yield Finding("bottleneck", subject, f"roles take turns, {shares}: each waits for the other", _TURNS[subject])
    elif turns:
        (edge, share), *_ = slow.waits.items()
        busiest = max(slow.roles, key=lambda role: role.busy).role
        text = f"{slow} wait {percent(share)} for each other on `{edge}`: {busiest} works most"
        yield Finding("bottleneck", last, text, "share environments and batches equally; pin processes to cores")
    else:
        text = f"{slow} {'are' if len(slow.roles) > 1 else 'is'} the bottleneck: {percent(slow.busy)} busy"
        own = FORMATIONS[formation].relief if last == measures.ends and formation in FORMATIONS else ""
        remedy = (full and _FULL.get(last)) or own or _REMEDIES.get(last, "")
        yield Finding("bottleneck", last, ", ".join([text, *_held_up_by(last, measures)]), remedy)
    yield from _held_back(measures, last)
    if full:
        text = f"the roles want {wanted:.1f} processors and there are {processors}: they wait for processors too"
        yield Finding("note", "processors", text, "more roles will not help here; fewer may lose nothing")


def _walk(measures: Measures) -> list[str]:
    """The kind that holds up the roles that end the run; where kinds take turns, the way round and back to it."""
    groups, path = measures.groups, [measures.ends]
    while path.count(path[-1]) == 1:
        kind = path[-1]
        name, share = next(iter(groups[kind].waits.items()), ("", 0.0))
        other = measures.edges[name].other_end(kind) if name in measures.edges else ""
        if _take_turns(kind, other, measures):
            return [kind, other, kind]
        if groups[kind].busy >= share:
            break
        if kind == "buffer":  # it listens to all; what it lacks is on the other side of who waits for it
            other = "actor" if path[-2:-1] == ["learner"] else "learner"
        if other not in groups:
            break
        path.append(other)
    return path[path.index(path[-1]) :]


def _waits(kind: str, other: str, measures: Measures) -> list[tuple[EdgeMeasure, float]]:
    """The edges on which roles of a kind wait for those of another, and for what share of their time."""
    waits = measures.groups[kind].waits if kind in measures.groups else {}
    edges = [edge for edge in measures.edges.values() if edge.edge in waits and edge.other_end(kind) == other]
    return [(edge, waits[edge.edge]) for edge in edges]


def _take_turns(kind: str, other: str, measures: Measures) -> bool:
    """Whether roles of two kinds both wait for something to come from the other."""
    if kind == other or "buffer" in (kind, other):  # a buffer's waiting says nothing, since it listens to all
        return False
    both = ((kind, other), (other, kind))
    return all(sum(share for edge, share in _waits(a, b, measures) if edge.source == b) >= TURNS for a, b in both)


def _held_up_by(slow: str, measures: Measures) -> Iterator[str]:
    """Who waits how much for the slow ones."""
    for group in measures.groups.values():
        for edge, share in _waits(group.kind, slow, measures):
            if share >= BLOCKED and group.kind not in (slow, "buffer"):
                does, on = ("blocked", "on") if edge.source == group.kind else ("waiting", "for")
                yield f"{group} {does} {percent(share)} {on} `{edge.edge}`"


def _held_back(measures: Measures, slow: str) -> Iterator[Finding]:
    """What the limiter of buffers does; one shard speaks for all, since the others say much the same."""
    drawn = measures.edges.get("samples")
    waits = {kind: group.waits for kind, group in measures.groups.items()}
    for wait in list(measures.limited.values())[:1]:
        if "experience" not in wait.edges:
            does = f" holds actors back ({percent(waits.get('actor', {}).get('experience', 0.0))} of their time)"
            remedy = "lower --samples-per-insert or speed up the learner"
            if slow == "actor":
                return
        elif drawn is not None and drawn.sent:
            does = f" holds the learner back ({percent(waits.get('learner', {}).get('samples', 0.0))} of its time)"
            remedy = "raise --samples-per-insert or add actors"
        else:
            does, remedy = ": the buffers are filling", "learning begins when they hold enough"
        yield Finding("note", "limiter", f"limiter{does}: {wait.reason}", remedy)
