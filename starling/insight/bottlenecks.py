"""Which roles hold up the others, and what to change.

The bottleneck is found by walking: from the roles that end the run, to those that they mostly wait for, and so on,
until one is met that mostly works. Where the walk comes back to where it was, the roles take turns.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from starling.executors.waits import Wait
from starling.formations import FORMATIONS
from starling.insight.evidence import Evidence
from starling.insight.findings import Finding, percent
from starling.insight.measures import Measures, RoleGroup

__all__ = ["bottleneck", "limited"]

Groups = Mapping[str, RoleGroup]
TURNS = 0.25  # share of their time that each of two kinds must wait for the other to be said to take turns
BLOCKED = 0.1  # share of their time that others must wait for a bottleneck to be named with it
_REMEDIES = {  # by kind, where the formation knows no better
    "actor": "more actors, or more environments per actor",
    "worker": "more workers (--actors), or more environments per worker",
    "buffer": "more buffers (--buffers), or larger chunks",
    "inference": "more environments per actor, so that a request carries more rows; a larger --inference-batch; "
    "or the other --act-backend",
    "learner": "larger batches, or the other --backend",
    "turns": "nobody may run ahead here; where the algorithm corrects for lag, --formation actor_learner lets "
    "actors go on; or make batches larger, so that turns change less often",
    "turns with inference": "the way there and back costs more than the network: more environments per actor, more "
    "actors, or a shorter --inference-wait",
}
_NO_ACTORS = "more environments per actor; more actors will not help, since all processors are taken"
_NO_ROLES = "larger batches, or fewer actors, which leave it more of the processors: all are taken"
_FULL = {"actor": _NO_ACTORS, "worker": _NO_ACTORS, "learner": _NO_ROLES, "server": _NO_ROLES}  # more would not help


def bottleneck(evidence: Evidence) -> Iterator[Finding]:
    """Who holds up the run, what the buffers' limiter does, and whether processors are short."""
    measures = evidence.measures
    groups = {kind: group for kind, group in measures.groups.items() if kind != "evaluator"}
    begun = all(role.silent is not None for group in groups.values() for role in group.roles)
    if measures.ends not in groups or len(groups) < 2 or not begun:
        return
    wanted, processors = sum(role.busy for role in measures.roles), evidence.processors
    full = wanted > 0.95 * processors and len(measures.roles) > processors
    path = _walk(groups, measures)
    slow, turns = groups[path[-1]], path[path.index(path[-1]) : -1]
    if len(turns) > 1:
        shares = " and ".join(f"{groups[kind]} {percent(groups[kind].busy)} busy" for kind in turns)
        asking = set(turns) == {"actor", "inference"}
        remedy = _REMEDIES["turns with inference" if asking else "turns"]
        text = f"roles take turns, {shares}: each waits for the other"
        yield Finding("bottleneck", "inference" if asking else "turns", text, remedy)
    elif turns:
        (edge, share), *_ = slow.waits.items()
        busiest = max(slow.roles, key=lambda role: role.busy).role
        text = f"{slow} wait {percent(share)} for each other on `{edge}`: {busiest} works most"
        yield Finding("bottleneck", slow.kind, text, "share environments and batches equally; pin processes to cores")
    else:
        text = f"{slow} {'are' if len(slow.roles) > 1 else 'is'} the bottleneck: {percent(slow.busy)} busy"
        ends = measures.ends == slow.kind and measures.formation in FORMATIONS
        own = FORMATIONS[measures.formation].relief if ends else ""
        remedy = (full and _FULL.get(slow.kind)) or own or _REMEDIES.get(slow.kind, "")
        yield Finding("bottleneck", slow.kind, ", ".join([text, *_held_up_by(slow, groups, measures)]), remedy)
    yield from _held_back(groups, measures, slow.kind)
    if full:
        text = f"the roles want {wanted:.1f} processors and there are {processors}: they wait for processors too"
        yield Finding("note", "processors", text, "more roles will not help here; fewer may lose nothing")


def _walk(groups: Groups, measures: Measures) -> list[str]:
    """From the roles that end the run to those that hold them up; the last one stands twice where they take turns."""
    path = [measures.ends]
    while path.count(path[-1]) == 1:
        group = groups[path[-1]]
        name, share = next(iter(group.waits.items()), ("", 0.0))
        edge = measures.edge(name)
        other = "" if edge is None else edge.other_end(group.kind)
        if all(_starved(one, of, groups, measures) >= TURNS for one, of in ((group.kind, other), (other, group.kind))):
            return [*path, other, group.kind]
        if group.busy >= share:
            break
        if group.kind == "buffer":  # it listens to all; what it lacks is on the other side of who waits for it
            other = "actor" if path[-2:-1] == ["learner"] else "learner"
        if other not in groups:
            break
        path.append(other)
    return path


def _starved(kind: str, source: str, groups: Groups, measures: Measures) -> float:
    """The share of their time that roles wait for something to come from those of another kind."""
    if kind not in groups or "buffer" in (kind, source):  # a buffer's waiting says nothing, since it listens to all
        return 0.0
    edges = {edge.edge for edge in measures.edges if edge.source == source != kind}
    return sum(share for name, share in groups[kind].waits.items() if name in edges)


def _held_up_by(slow: RoleGroup, groups: Groups, measures: Measures) -> Iterator[str]:
    """Who waits how much for the slow ones."""
    others = [group for group in groups.values() if group.kind not in (slow.kind, "buffer")]
    for group, edge in itertools.product(others, measures.edges):
        share = group.waits.get(edge.edge, 0.0)
        if share >= BLOCKED and edge.other_end(group.kind) == slow.kind:
            does, on = ("blocked", "on") if edge.source == group.kind else ("waiting", "for")
            yield f"{group} {does} {percent(share)} {on} `{edge.edge}`"


def _held_back(groups: Groups, measures: Measures, slow: str) -> Iterator[Finding]:
    """What the limiter of buffers does; one shard speaks for all, since the others say much the same."""
    drawn = measures.edge("samples")
    waits = {kind: group.waits for kind, group in groups.items()}
    for wait in list(limited(measures).values())[:1]:
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


def limited(measures: Measures) -> dict[str, Wait]:
    """The buffers that do not take or give at the moment, and what they wait for meanwhile.

    A buffer listens to all who send to it; an edge that it leaves out is held back by its limiter.
    """
    coming = {edge.edge for edge in measures.edges if edge.target == "buffer"}
    waits = {role.role: role.waiting for role in measures.roles if role.kind == "buffer" and role.waiting is not None}
    return {role: wait for role, wait in waits.items() if coming - set(wait.edges)}
