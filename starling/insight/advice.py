"""Which formation to run, with how many actors and on which backends, from what its parts take: a pure function.

The model is simple. An actor's step takes what it took when timed; actors work side by side as far as there are
processors; a learner learns while actors act where they may run ahead, and in turn with them where they may not. What
it leaves out (caches, memory, what else the machine does) makes real runs slower: docs/formations.md tells by how much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from starling.formations import FORMATIONS
from starling.insight.timing import Timings

__all__ = ["Advice", "Option", "recommend"]

# Assumed, since one process cannot time them; the second was chosen to agree with one comparison on a busy machine.
HANDOVER = 150e-6  # seconds until a process that waits has noticed and goes on
QUEUEING = 1e-3  # seconds that it then waits for a processor, for each other process that wants the same one
GATHERING = 1e-3  # seconds that a request waits for others, about half of the default inference_wait
WORTH = 1.15  # gain that must be expected of a formation before it is preferred to a simpler one
CLOSE = 0.97  # share of the best rate that makes fewer actors enough
WORK = {name: kind.work for name, kind in FORMATIONS.items() if kind.work}  # those that are estimated
ORDER = sorted(WORK, key=lambda name: ("in_turn", "together", "ahead", "served").index(WORK[name]))  # simplest first


@dataclass(frozen=True)
class Option:
    """A formation with the number of actors that suits it here, and what is expected of it."""

    formation: str
    actors: int | None  # None: it has none of its own
    rate: float  # environment steps per second, estimated
    limited_by: str


@dataclass(frozen=True)
class Advice:
    """What to run."""

    backend: str
    act_backend: str
    option: Option
    options: tuple[Option, ...]
    notes: tuple[str, ...]

    def command(self, algo: str, env: str, more: str = "") -> str:
        """The command line that does it."""
        counts = "" if self.option.actors is None else f" --actors {self.option.actors}"
        backends = f" --backend {self.backend} --act-backend {self.act_backend}"
        return f"starling train --algo {algo} --env {env}{more} --formation {self.option.formation}{counts}{backends}"


def recommend(timings: Timings, misfits: Mapping[str, str | None]) -> Advice:
    """The formation, counts and backends to run; ``misfits`` says which formations the algorithm does not fit."""
    update = min(timings.of("update"), key=lambda timed: timed.seconds)
    options = [_best(name, timings, update.per_step) for name in ORDER if misfits.get(name) is None]
    chosen = options[0]
    for option in options[1:]:
        if option.rate >= WORTH * chosen.rate:
            chosen = option
    rows = timings.rows(chosen.actors or 1)
    act = min(timings.of("inference"), key=lambda timed: timings.at("inference", rows, timed.backend))
    notes = tuple(_notes(timings, update.per_step, chosen, misfits))
    return Advice(update.backend, act.backend, chosen, tuple(options), notes)


def _best(name: str, timings: Timings, learning: float) -> Option:
    """The formation with the fewest actors that do nearly as well as any number; they share the environments."""
    if WORK[name] == "in_turn":
        return _expected(name, None, timings, learning)
    counts = [n for n in range(1, 2 * timings.cores + 1) if timings.replays or timings.envs % n == 0]
    options = [_expected(name, actors, timings, learning) for actors in counts]
    most = max(option.rate for option in options)
    return next(option for option in options if option.rate >= CLOSE * most)


def _expected(name: str, actors: int | None, timings: Timings, learning: float) -> Option:
    """What is expected of a formation, from the seconds that each thing takes per environment step."""
    work, cores, count = WORK[name], timings.cores, actors or 1
    rows, (update, *_), (transport,) = timings.rows(count), timings.of("update"), timings.of("transport")
    acting, moving = timings.at("acting", rows) / rows, transport.per_step
    waking = HANDOVER + QUEUEING * max(0.0, timings.load - cores) / cores
    if work == "in_turn":
        takes = {"acting": acting, "learning": learning}
    elif work == "together":
        handing = (1 + count) * waking / max(update.steps, rows * count)
        takes = {"acting": acting / min(count, cores), "learning": learning, "handing over": moving + handing}
    else:
        if work == "served":
            env, together = timings.at("env", rows), rows * count
            inference = min(timings.at("inference", together, each.backend) for each in timings.of("inference"))
            answered = env + inference + HANDOVER + waking + GATHERING * (count > 1)  # from one step to the next
            each_step = (env + 2 * HANDOVER) / rows + inference / together
            takes = {"acting": answered / together, "inference": (inference + HANDOVER) / together}
        else:
            each_step = acting + waking * timings.envs / (rows * transport.steps)
            takes = {"acting": each_step / count}
        takes |= {"learning": learning + moving, "processors": (each_step + 2 * moving + learning) / cores}
    taken = sum(takes.values()) if work in ("in_turn", "together") else max(takes.values())
    return Option(name, actors, 1.0 / taken, max(takes, key=lambda thing: takes[thing]))


def _notes(timings: Timings, learning: float, chosen: Option, misfits: Mapping[str, str | None]) -> Iterator[str]:
    """What the numbers leave open."""
    acting = timings.at("acting", timings.envs) / timings.envs
    yield from (f"{name} was left out: {reason}" for name in ORDER if (reason := misfits.get(name)) is not None)
    if learning > 2 * acting:
        share = learning / (acting + learning)
        yield (
            f"learning takes {100 * share:.0f} % of the work: more actors cannot help much; larger batches may, and on "
            "more processors allreduce"
        )
    if timings.load > 0.5 * timings.cores:
        yield (
            f"the machine is busy (load {timings.load:.1f} on {timings.cores} processors): timings are slower than "
            "they could be, and estimates rougher"
        )
    if chosen.limited_by == "processors":
        yield f"all {timings.cores} processors would be taken: more actors need more of them"
    if WORK[chosen.formation] in ("ahead", "served"):
        yield "actors run ahead: experience is some updates old, and runs with the same seed differ"
    others = ", ".join(name for name in FORMATIONS if name not in WORK)
    yield f"{others} learn differently per step, and are not estimated"
