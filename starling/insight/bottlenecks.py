"""Which roles hold up the others, and what to change.

The bottleneck is found by walking: from the roles that end the run, to those that they mostly wait for, and so on,
until one is met that mostly works. Where the walk comes back to where it was, the roles take turns.
"""

from __future__ import annotations

from collections.abc import Mapping

from starling.executors.waits import Wait
from starling.formations import FORMATIONS
from starling.insight.findings import Finding, percent
from starling.insight.measures import EdgeMeasure, Kind, Measures, RoleMeasure

__all__ = ["bottleneck", "limited", "other_end"]

TURNS = 0.25  # share of their time that each of two kinds must wait for the other to be said to take turns
_REMEDIES = {  # by kind, where the formation knows no better
    "actor": "more actors, or more environments per actor",
    "worker": "more workers (--actors), or more environments per worker",
    "buffer": "more buffers (--buffers), or larger chunks",
    "inference": "more environments per actor, so that a request carries more rows; a larger --inference-batch; "
    "or the other --act-backend",
    "learner": "larger batches, or the other --backend",
    "turns-turns": "nobody may run ahead here; where the algorithm corrects for lag, --formation actor_learner lets "
    "actors go on; or make batches larger, so that turns change less often",
    "turns-inference": "the way there and back costs more than the network: more environments per actor, more actors, "
    "or a shorter --inference-wait",
}


def bottleneck(measures: Measures, processors: int) -> list[Finding]:
    """Who holds up the run, what the buffers' limiter does, and whether processors are short."""
    kinds = {name: kind for name, kind in measures.kinds().items() if name != "evaluator"}
    begun = all(role.silent is not None for role in measures.roles if role.kind != "evaluator")
    if measures.ends not in kinds or len(kinds) < 2 or not begun:
        return []
    path = _walk(kinds, measures)
    wanted = sum(role.busy for role in measures.roles)
    full = wanted > 0.95 * processors and len(measures.roles) > processors
    slow = kinds[path[-1]]
    if path.count(slow.kind) > 1:
        found = [_turns(path[path.index(slow.kind) : -1], kinds, measures)]
    else:
        text = f"{_plural(slow)} {'are' if slow.count > 1 else 'is'} the bottleneck: {percent(slow.busy)} busy"
        text += "".join(f", {said}" for said in _blocked(slow, kinds, measures))
        found = [Finding("bottleneck", slow.kind, text, _remedy_for(slow.kind, measures, full))]
    found += _held_back(kinds, measures, slow.kind)
    if full:
        text = f"the roles want {wanted:.1f} processors and there are {processors}: they wait for processors too"
        found.append(Finding("note", "processors", text, "more roles will not help here; fewer may lose nothing"))
    return found


def _walk(kinds: Mapping[str, Kind], measures: Measures) -> list[str]:
    """From the roles that end the run to those that hold them up; the last one stands twice where they take turns."""
    path, came_from = [measures.ends], ""
    while True:
        kind = kinds[path[-1]]
        edge_name, share = kind.longest_wait()
        edge = measures.edge(edge_name)
        other = other_end(edge, kind.kind) if edge is not None else ""
        if other in kinds and _both_starve(kind, kinds[other], measures):
            return [*path, other, kind.kind]
        if kind.busy >= share or share == 0.0:
            return path
        if kind.kind == "buffer":  # it listens to all; what it lacks is on the other side of who waits for it
            other = "actor" if came_from == "learner" else "learner"
        if other not in kinds:
            return path
        came_from = kind.kind
        path.append(other)
        if path.count(other) > 1:
            return path


def _both_starve(one: Kind, other: Kind, measures: Measures) -> bool:
    """Whether two kinds wait for each other; a buffer's waiting says nothing, since it listens to all."""
    if "buffer" in (one.kind, other.kind):
        return False
    return min(_starved(one, other.kind, measures), _starved(other, one.kind, measures)) >= TURNS


def _starved(kind: Kind, source: str, measures: Measures) -> float:
    """The share of their time that roles wait for something to come from those of another kind."""
    mine = {edge.edge for edge in measures.edges if edge.source == source != kind.kind}
    return sum(share for name, share in kind.waits.items() if name in mine)


def _blocked(slow: Kind, kinds: Mapping[str, Kind], measures: Measures) -> list[str]:
    """Who waits how much for the slow ones."""
    found = []
    for kind in kinds.values():
        for name, share in kind.waits.items():
            edge = measures.edge(name)
            if kind is slow or edge is None or share < 0.1 or slow.kind != other_end(edge, kind.kind):
                continue
            if kind.kind != "buffer":
                does = "blocked" if edge.source == kind.kind else "waiting"
                on = "on" if edge.source == kind.kind else "for"
                found.append(f"{_plural(kind)} {does} {percent(share)} {on} `{name}`")
    return found


def _turns(path: list[str], kinds: Mapping[str, Kind], measures: Measures) -> Finding:
    """Roles each of which waits for the other."""
    if len(path) == 1:
        kind = kinds[path[0]]
        edge, share = kind.longest_wait()
        text = f"{_plural(kind)} wait {percent(share)} for each other on `{edge}`: {kind.busiest} works most"
        return Finding("bottleneck", kind.kind, text, "share environments and batches equally; pin processes to cores")
    shares = " and ".join(f"{_plural(kinds[name])} {percent(kinds[name].busy)} busy" for name in path)
    text = f"roles take turns, {shares}: each waits for the other"
    subject = "inference" if set(path) == {"actor", "inference"} else "turns"
    return Finding("bottleneck", subject, text, _remedy_for(f"turns-{subject}", measures, False))


def _held_back(kinds: Mapping[str, Kind], measures: Measures, slow: str) -> list[Finding]:
    """What the limiter of buffers does; one shard speaks for all, since the others say much the same."""
    samples = measures.edge("samples")
    for _, wait in limited(measures)[:1]:
        if "experience" not in wait.edges:
            share = kinds["actor"].waits.get("experience", 0.0) if "actor" in kinds else 0.0
            remedy = "lower --samples-per-insert or speed up the learner" if slow != "actor" else ""
            text = f"limiter holds actors back ({percent(share)} of their time): {wait.reason}"
        elif samples is not None and samples.sent:
            share = kinds["learner"].waits.get("samples", 0.0) if "learner" in kinds else 0.0
            remedy = "raise --samples-per-insert or add actors"
            text = f"limiter holds the learner back ({percent(share)} of its time): {wait.reason}"
        else:
            text, remedy = f"limiter: the buffers are filling: {wait.reason}", "learning begins when they hold enough"
        if remedy:
            return [Finding("note", "limiter", text, remedy)]
    return []


def other_end(edge: EdgeMeasure, kind: str) -> str:
    return edge.target if edge.source == kind else edge.source


def limited(measures: Measures) -> list[tuple[RoleMeasure, Wait]]:
    """The buffers that do not take or give at the moment, and what they wait for meanwhile.

    A buffer listens to all who send to it; an edge that it leaves out is held back by its limiter.
    """
    found = []
    for role in measures.roles:
        if role.kind == "buffer" and role.waiting is not None:
            coming = [edge.edge for edge in measures.edges if edge.target == role.kind]
            if any(edge not in role.waiting.edges for edge in coming):
                found.append((role, role.waiting))
    return found


def _plural(kind: Kind) -> str:
    return f"{kind.kind}s" if kind.count > 1 else kind.kind


def _remedy_for(kind: str, measures: Measures, full: bool) -> str:
    """What to change; ``full`` says that all processors are taken, so that more roles of any kind would not help."""
    if full and kind in ("actor", "worker"):
        return "more environments per actor; more actors will not help, since all processors are taken"
    if full and kind in ("learner", "server"):
        return "larger batches, or fewer actors, which leave it more of the processors: all are taken"
    known = kind == measures.ends and measures.formation in FORMATIONS
    own = FORMATIONS[measures.formation].relief if known else ""
    return own or _REMEDIES.get(kind, "")
