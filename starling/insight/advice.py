"""Which formation to run, with how many actors and on which backends, from what its parts take: a pure function.

The model is simple. An actor's step takes what it took when timed; actors work side by side as far as there are
processors; a learner learns while actors act where they may run ahead, and in turn with them where they may not. What
it leaves out (caches, memory, what else the machine does) makes real runs slower: docs/formations.md tells by how much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from starling.formations import FORMATIONS
from starling.formations.compatibility import Traits, misfit
from starling.insight.timing import Timed

__all__ = ["Advice", "Option", "Timings", "recommend"]

# Assumed, since one process cannot time them; the second was chosen to agree with one comparison on a busy machine.
HANDOVER = 150e-6  # seconds until a process that waits has noticed and goes on
QUEUEING = 1e-3  # seconds that it then waits for a processor, for each other process that wants the same one
GATHERING = 1e-3  # seconds that a request waits for others, about half of the default inference_wait
WORTH = 1.15  # gain that must be expected of a formation before it is preferred to a simpler one
CLOSE = 0.97  # share of the best rate that makes fewer actors enough
SHARING = ("in_turn", "together", "ahead", "served")  # how acting and learning share the time, the simplest first
WORK = {name: work for work in SHARING for name, kind in FORMATIONS.items() if kind.work == work}


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


@dataclass(frozen=True, kw_only=True)
class Timings:
    """What an advice is made of."""

    parts: tuple[Timed, ...]
    envs: int  # environments of the run, over all its actors
    cores: int
    load: float = 0.0  # processors that others used when timing began

    def rows(self, actors: int | None) -> int:
        """Environments of each of so many actors."""
        return max(1, self.envs // (actors or 1))

    def of(self, part: str, rows: int | None = None) -> Timed:
        """A call of a part for so many rows, or for all, on the backend that takes the fewest seconds."""
        timed = [each for each in self.parts if each.part == part]
        backends = dict.fromkeys(each.backend for each in timed)
        calls = [_call([each for each in timed if each.backend == name], rows or self.envs) for name in backends]
        return min(calls, key=lambda call: call.seconds)


def _call(timed: list[Timed], rows: int) -> Timed:
    """A call for so many rows, on the line through those of the fewest and of the most that were timed."""
    few, many = timed[0], timed[-1]
    slope = few.seconds / few.rows
    if few.rows < many.rows:
        slope = max(0.0, many.seconds - few.seconds) / (many.rows - few.rows)
    seconds = few.seconds + slope * (rows - few.rows)
    return replace(few, rows=rows, seconds=seconds, steps=few.steps * rows / few.rows)


def recommend(timings: Timings, traits: Traits) -> Advice:
    """The formation, counts and backends to run for an algorithm with these traits."""
    misfits = {name: reason for name in WORK if (reason := misfit(name, traits)) is not None}
    counts = [n for n in range(1, 2 * timings.cores + 1) if "replays" in traits.has or timings.envs % n == 0]
    options = [_best(name, timings, counts) for name in WORK if name not in misfits]
    chosen = options[0]
    for option in options[1:]:
        if option.rate >= WORTH * chosen.rate:
            chosen = option
    update, inference = timings.of("update"), timings.of("inference", timings.rows(chosen.actors))
    notes = tuple(_notes(timings, chosen, misfits))
    return Advice(update.backend, inference.backend, chosen, tuple(options), notes)


def _best(name: str, timings: Timings, counts: list[int]) -> Option:
    """The formation with the fewest actors that do nearly as well as any number; they share the environments."""
    if WORK[name] == "in_turn":
        return _expected(name, None, timings)
    options = [_expected(name, actors, timings) for actors in counts]
    most = max(option.rate for option in options)
    return next(option for option in options if option.rate >= CLOSE * most)


def _expected(name: str, actors: int | None, timings: Timings) -> Option:
    """What is expected of a formation, from the seconds that each thing takes per environment step."""
    work, cores, count, rows = WORK[name], timings.cores, actors or 1, timings.rows(actors)
    update, transport = timings.of("update"), timings.of("transport")
    acting, learning, moving = timings.of("acting", rows).per_step, update.per_step, transport.per_step
    waking = HANDOVER + QUEUEING * max(0.0, timings.load - cores) / cores
    if work == "in_turn":
        takes = {"acting": acting, "learning": learning}
    elif work == "together":
        handing = (1 + count) * waking / max(update.steps, rows * count)
        takes = {"acting": acting / min(count, cores), "learning": learning, "handing over": moving + handing}
    else:
        if work == "served":
            env, together = timings.of("env", rows).seconds, rows * count
            inference = timings.of("inference", together).seconds
            answered = env + inference + HANDOVER + waking + GATHERING * (count > 1)  # from one step to the next
            each_step = (env + 2 * HANDOVER) / rows + inference / together
            takes = {"acting": answered / together, "inference": (inference + HANDOVER) / together}
        else:
            each_step = acting + waking * timings.envs / (rows * transport.steps)
            takes = {"acting": each_step / count}
        takes |= {"learning": learning + moving, "processors": (each_step + 2 * moving + learning) / cores}
    taken = sum(takes.values()) if work in ("in_turn", "together") else max(takes.values())
    return Option(name, actors, 1.0 / taken, max(takes, key=lambda thing: takes[thing]))


def _notes(timings: Timings, chosen: Option, misfits: Mapping[str, str]) -> Iterator[str]:
    """What the numbers leave open."""
    acting, learning = timings.of("acting").per_step, timings.of("update").per_step
    yield from (f"{name} was left out: {reason}" for name, reason in misfits.items())
    if learning > 2 * acting:
        yield (
            f"learning takes {100 * learning / (acting + learning):.0f} % of the work: more actors cannot help much; "
            "larger batches may, and on more processors allreduce"
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
