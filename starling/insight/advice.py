"""Which formation to run, with how many actors and on which backends, from what its parts take: a pure function.

The model is simple. An actor's step takes what it took when timed; actors work side by side as far as there are
processors; a learner learns while actors act where they may run ahead, and in turn with them where they may not. What
it leaves out (caches, memory, what else the machine does) makes real runs slower: docs/formations.md tells by how much.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    backend = min(timings.update, key=lambda name: timings.update[name])
    options = [_best(name, timings, timings.update[backend]) for name in ORDER if misfits.get(name) is None]
    chosen = options[0]
    for option in options[1:]:
        if option.rate >= WORTH * chosen.rate:
            chosen = option
    rows = _rows(timings, chosen.actors or 1)
    act = min(timings.inference, key=lambda name: _at(timings.inference[name], rows))
    notes = _notes(timings, timings.update[backend], chosen, misfits)
    return Advice(backend, act, chosen, tuple(options), notes)


def _rows(timings: Timings, actors: int) -> int:
    """Environments of each actor."""
    return max(1, timings.envs // actors)


def _at(seconds: Mapping[int, float], rows: int) -> float:
    """The time for so many rows, on the line through those that were timed."""
    (low, least), (high, most) = min(seconds.items()), max(seconds.items())
    if low == high:
        return least * rows / low if rows > low else least
    slope = max(0.0, (most - least) / (high - low))
    return max(min(least, most), least + slope * (rows - low))


def _counts(name: str, timings: Timings) -> list[int | None]:
    """How many actors could share the environments."""
    if WORK[name] == "in_turn":
        return [None]
    most = 2 * timings.cores
    if timings.replays:
        return [*range(1, most + 1)]
    return [n for n in range(1, min(most, timings.envs) + 1) if timings.envs % n == 0]


def _best(name: str, timings: Timings, update: float) -> Option:
    """The formation with the fewest actors that do nearly as well as any number."""
    options = [_expected(name, actors, timings, update) for actors in _counts(name, timings)]
    most = max(option.rate for option in options)
    return next(option for option in options if option.rate >= CLOSE * most)


def _expected(name: str, actors: int | None, timings: Timings, update: float) -> Option:
    """What is expected of a formation, in seconds per environment step of each thing that happens."""
    count = actors or 1
    rows = _rows(timings, count)
    acting = _at(timings.acting, rows) / rows
    learning = update / timings.steps_per_update
    moving = timings.transport / (timings.envs * timings.length)
    cores = timings.cores
    queueing = QUEUEING * max(0.0, timings.load - cores) / cores
    work = WORK[name]
    if work == "in_turn":
        total = acting + learning
        return Option(name, None, 1.0 / total, "acting" if acting > learning else "learning")
    if work == "together":
        handing = (1 + count) * (HANDOVER + queueing) / max(timings.steps_per_update, rows * count)
        side_by_side = acting / min(count, cores)
        total = side_by_side + learning + moving + handing
        return Option(name, count, 1.0 / total, "acting" if side_by_side > learning else "learning")
    handing = (HANDOVER + queueing) / (rows * timings.length)
    if work == "served":
        together = min(_at(seconds, rows * count) for seconds in timings.inference.values())
        asking = (
            _at(timings.env, rows) + together + 2 * HANDOVER + queueing + GATHERING * (count > 1)
        ) / rows  # an actor's wait for its answer included
        each = _at(timings.env, rows) / rows + together / (rows * count) + 2 * HANDOVER / rows
        limits = {"acting": count / asking, "inference": rows * count / (together + HANDOVER)}
    else:
        each = acting + handing
        limits = {"acting": count / each}
    limits |= {"learning": 1.0 / (learning + moving), "processors": cores / (each + 2 * moving + learning)}
    limited_by = min(limits, key=lambda limit: limits[limit])
    return Option(name, count, limits[limited_by], limited_by)


def _notes(timings: Timings, update: float, chosen: Option, misfits: Mapping[str, str | None]) -> tuple[str, ...]:
    """What the numbers leave open."""
    acting = _at(timings.acting, timings.envs) / timings.envs
    learning = update / timings.steps_per_update
    notes = [f"{name} was left out: {reason}" for name in ORDER if (reason := misfits.get(name)) is not None]
    if learning > 2 * acting:
        share = learning / (acting + learning)
        notes.append(
            f"learning takes {100 * share:.0f} % of the work: more actors cannot help much; larger batches may, and on "
            "more processors allreduce"
        )
    if timings.load > 0.5 * timings.cores:
        notes.append(
            f"the machine is busy (load {timings.load:.1f} on {timings.cores} processors): timings are slower than "
            "they could be, and estimates rougher"
        )
    if chosen.limited_by == "processors":
        notes.append(f"all {timings.cores} processors would be taken: more actors need more of them")
    if WORK[chosen.formation] in ("ahead", "served"):
        notes.append("actors run ahead: experience is some updates old, and runs with the same seed differ")
    others = ", ".join(name for name in FORMATIONS if name not in WORK)
    notes.append(f"{others} learn differently per step, and are not estimated")
    return tuple(notes)
