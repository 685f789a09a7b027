"""The formations, and what each can be told.

form("apex", Counts(actors=4, buffers=2))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from starling.core.errors import ConfigError, UnknownNameError
from starling.formations.base import Edge, Formation, Roles

__all__ = ["FORMATIONS", "Counts", "Kind", "form", "free_settings", "get_formation", "settle"]


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Counts and limits; None is the formation's own default."""

    actors: int | None = None  # roles that act; workers where they also compute gradients
    learners: int | None = None
    buffers: int | None = None  # shards of the replay table
    servers: int | None = None  # parameter servers
    evaluators: int | None = None  # roles that play greedily beside the run
    queue: int | None = None  # items that wait between two roles
    max_lag: int | None = None  # updates that experience may be old; 0: nobody runs ahead; older is dropped
    samples_per_insert: float | None = None  # times that a transition is drawn, on average; 0: no limit
    inference_batch: int | None = None  # requests answered together; 0: as many as there are actors
    inference_wait: float | None = None  # seconds that a request waits for others

    def __post_init__(self) -> None:
        least = {"evaluators": 0, "max_lag": 0, "samples_per_insert": 0, "inference_batch": 0, "inference_wait": 0}
        for each in fields(self):
            value, low = getattr(self, each.name), least.get(each.name, 1)
            if value is not None and value < low:
                raise ConfigError(f"{each.name}={value}; it must be at least {low}.")


@dataclass(frozen=True)
class Kind:
    """A sort of formation: what it is for, its defaults (the settings it knows), and how it is laid out."""

    name: str
    text: str
    defaults: dict[str, int | float | None]
    lay_out: Callable[[Counts], Formation]


def _watched(formation: Formation, counts: Counts) -> Formation:
    """The formation with evaluators, where some are asked for."""
    if not counts.evaluators:
        return formation
    edges = tuple(replace(e, also=("evaluator",)) if e.name == "weights" else e for e in formation.edges)
    return replace(formation, roles=(*formation.roles, Roles("evaluator", counts.evaluators)), edges=edges)


def _single(counts: Counts) -> Formation:
    return Formation("single", (Roles("learner", 1),), (), ends="learner")


def _acting_and_learning(name: str) -> Callable[[Counts], Formation]:
    """Actors send rollouts to learners, which send weights back and, where several, agree on gradients."""

    def lay_out(counts: Counts) -> Formation:
        actors, learners = counts.actors or 1, counts.learners or 1
        if actors % learners:
            raise ConfigError(f"actors={actors} cannot be shared equally by learners={learners}; use a multiple.")
        edges = [
            Edge("experience", "queue", "actor", "learner", counts.queue or 1, pinned=True),
            Edge("weights", "broadcast", "learner", "actor", pinned=True),
        ]
        if learners > 1:
            edges += [Edge(name, "collective", "learner", "learner") for name in ("agreement", "gradients")]
        lockstep = counts.max_lag == 0
        roles = (Roles("learner", learners), Roles("actor", actors))
        return _watched(Formation(name, roles, tuple(edges), "learner", lockstep), counts)

    return lay_out


def _gradient_servers(name: str) -> Callable[[Counts], Formation]:
    """Workers act and compute gradients; parameter servers, each with a part of the parameters, apply them."""

    def lay_out(counts: Counts) -> Formation:
        edges = (
            Edge("gradients", "queue", "worker", "server", counts.queue or 1),
            Edge("weights", "broadcast", "server", "worker"),
        )
        roles = (Roles("server", counts.servers or 1), Roles("worker", counts.actors or 1))
        return _watched(Formation(name, roles, edges, ends="server"), counts)

    return lay_out


def _apex(counts: Counts) -> Formation:
    actors, buffers = counts.actors or 1, counts.buffers or 1
    if buffers > actors:
        raise ConfigError(f"buffers={buffers} for actors={actors}; some would stay empty: use at most one per actor.")
    queue = counts.queue or 1
    edges = (
        Edge("experience", "queue", "actor", "buffer", queue, pinned=True),
        Edge("requests", "queue", "learner", "buffer", queue + 1),
        Edge("samples", "queue", "buffer", "learner", queue + 1, answers="requests"),
        Edge("priorities", "queue", "learner", "buffer", queue + 1),
        Edge("weights", "broadcast", "learner", "actor"),
    )
    roles = (Roles("learner", 1), Roles("buffer", buffers), Roles("actor", actors))
    return _watched(Formation("apex", roles, edges, ends="learner"), counts)


def _central_inference(counts: Counts) -> Formation:
    edges = (
        Edge("requests", "queue", "actor", "inference", 1),
        Edge("replies", "queue", "inference", "actor", 1, answers="requests"),
        Edge("experience", "queue", "actor", "learner", counts.queue or 1),
        Edge("weights", "broadcast", "learner", "inference"),
    )
    roles = (Roles("learner", 1), Roles("inference", 1), Roles("actor", counts.actors or 1))
    lockstep = counts.max_lag == 0
    return _watched(Formation("central_inference", roles, edges, "learner", lockstep), counts)


_ACTING = {"actors": 2, "evaluators": 0}
FORMATIONS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("single", "acts and learns in one role", {}, _single),
        Kind(
            "sync",
            "actors wait for every update, as one process would",
            {**_ACTING, "max_lag": 0},
            _acting_and_learning("sync"),
        ),
        Kind(
            "async_gradients",
            "workers act and send gradients to a parameter server (A3C, GORILA)",
            {**_ACTING, "queue": 1},
            _gradient_servers("async_gradients"),
        ),
        Kind(
            "apex",
            "actors fill sharded prioritized buffers, the learner draws from them (Ape-X)",
            {**_ACTING, "buffers": 1, "queue": 2, "samples_per_insert": 8.0},
            _apex,
        ),
        Kind(
            "actor_learner",
            "actors run ahead of one or more learners, which correct for it (IMPALA)",
            {**_ACTING, "learners": 1, "queue": 1, "max_lag": None},
            _acting_and_learning("actor_learner"),
        ),
        Kind(
            "central_inference",
            "actors hold no network, an inference server acts for all of them (SEED)",
            {**_ACTING, "queue": 1, "max_lag": None, "inference_batch": 0, "inference_wait": 0.002},
            _central_inference,
        ),
        Kind(
            "sharded_ps",
            "parameters are split over servers, workers push gradients and pull weights",
            {**_ACTING, "servers": 2, "queue": 1},
            _gradient_servers("sharded_ps"),
        ),
        Kind(
            "allreduce",
            "several learners average their gradients and stay identical",
            {**_ACTING, "learners": 2, "max_lag": 0},
            _acting_and_learning("allreduce"),
        ),
    )
}
_FIXED = {"sync": ("max_lag",), "allreduce": ("max_lag",)}  # what makes these formations what they are


def get_formation(name: str) -> Kind:
    if name not in FORMATIONS:
        raise UnknownNameError("formation", name, FORMATIONS)
    return FORMATIONS[name]


def free_settings(name: str) -> dict[str, int | float | None]:
    """The settings that a formation leaves to its user, with their defaults."""
    return {key: value for key, value in FORMATIONS[name].defaults.items() if key not in _FIXED.get(name, ())}


def settle(name: str, counts: Counts) -> Counts:
    """The counts with the formation's defaults filled in; a setting without effect in it is refused."""
    kind = get_formation(name)
    free = list(free_settings(name))
    for each in fields(counts):
        value = getattr(counts, each.name)
        if value is None or each.name in free or value == kind.defaults.get(each.name):
            continue
        fits = [other for other in FORMATIONS if each.name in free_settings(other)]
        known = f"it takes {', '.join(free)}" if free else "it takes no counts"
        raise ConfigError(
            f"{each.name}={value} has no effect in the formation {name}: {known}. It has one in {', '.join(fits)}."
        )
    missing: dict[str, Any] = {key: value for key, value in kind.defaults.items() if getattr(counts, key) is None}
    return replace(counts, **missing)


def form(name: str, counts: Counts | None = None) -> Formation:
    """The formation of this name with these counts."""
    return get_formation(name).lay_out(settle(name, counts or Counts()))
