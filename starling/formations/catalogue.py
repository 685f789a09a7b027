"""The formations, the settings of each, and what it asks of an algorithm.

form("apex", Counts(actors=4, buffers=2))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from starling.core.errors import ConfigError
from starling.core.registry import Registry
from starling.core.settings import Settings, setting
from starling.formations.base import Edge, Formation, Roles

__all__ = ["FORMATIONS", "Counts", "FormationKind", "Need", "form", "free_settings", "resolved_counts"]


MOST = 100_000  # roles of one kind


@dataclass(frozen=True, kw_only=True)
class Counts(Settings):
    """Counts and limits of a formation; None is the formation's own default."""

    actors: int | None = setting(None, "roles that act; workers where they also compute gradients", 1, MOST)
    learners: int | None = setting(None, "roles that learn", 1, MOST)
    buffers: int | None = setting(None, "shards of the replay table", 1, MOST)
    servers: int | None = setting(None, "parameter servers", 1, MOST)
    inference_servers: int | None = setting(None, "roles that act for actors without a network", 1, MOST)
    evaluators: int | None = setting(None, "roles that play greedily beside the run", 0, MOST)
    queue: int | None = setting(None, "items that wait between two roles", 1)
    batch_chunks: int | None = setting(None, "chunks that a learner takes for a batch; None: one of each actor", 1)
    max_lag: int | None = setting(None, "updates that experience may be old; 0: nobody runs ahead; older is dropped", 0)
    samples_per_insert: float | None = setting(
        None, "times that an item is drawn, on average; 0: no limit; None: as the algorithm's settings say", 0
    )
    inference_batch: int | None = setting(None, "requests answered together; 0: as many as there are actors", 0)
    inference_wait: float | None = setting(None, "seconds that a request waits for others", 0)
    overlap: bool | None = setting(None, "act with the weights from before the last update, while it is computed")


@dataclass(frozen=True)
class Need:
    """Something that a formation asks of an algorithm: one of these traits, or nobody runs ahead."""

    traits: tuple[str, ...]
    reason: str  # why, with {algo} and {formation}
    unless_lockstep: bool = False


@dataclass(frozen=True)
class FormationKind:
    """A sort of formation: what it is for, its defaults (the settings it knows), how it is laid out, what it needs."""

    name: str
    text: str
    defaults: dict[str, int | float | None]
    lay_out: Callable[[Counts], Formation]
    fixed: tuple[str, ...] = ()  # settings that make it what it is
    careful: bool = False  # whether nobody runs ahead unless the algorithm corrects for it or replays
    needs: tuple[Need, ...] = ()
    work: Literal["", "in_turn", "together", "ahead", "served"] = ""  # how acting and learning share the time
    old: bool = False  # whether experience is meant to be old
    relief: str = ""  # what to change where the roles that end the run hold up the others


ACTS = Need(("acts",), "{algo} learns from a data set, and nobody acts")
GRADIENTS = Need(("exchanges_gradients",), "{algo} follows no gradients that could be exchanged")
LAG = Need(
    ("replays", "corrects"),
    "{algo} takes every rollout for one of its newest weights, and actors of {formation} run ahead; max_lag=0 lets "
    "nobody run ahead",
    unless_lockstep=True,
)
REPLAYS = Need(("replays",), "{algo} learns from its experience once, and {formation} replays it")
STEPS = Need(("steps",), "{algo} moves the parameters of each actor, and those of {formation} lie at a server")
EVALUATES = Need(("evaluates",), "{algo} learns from steps, and actors of {formation} send returns alone")

_ACTOR, _LEARNER = "starling.roles.actors:make_actor", "starling.roles.learning:make_learner"
_STATE, _SHARD, _EXPERIENCE, _STORED, _NETWORK, _OWN_CHUNK, _MEMORIES = (
    f"starling.roles.memory:{name}"
    for name in ("learner", "shard", "experience", "shard_of_experience", "network", "chunk", "memories")
)
_CHUNK, _WEIGHTS = "starling.roles.actors:blank_chunk", "starling.roles.learning:blank_weights"
_TOGETHER = {name: f"starling.roles.learning:blank_{name}" for name in ("agreement", "gradients", "statistics")}


def _watched(formation: Formation, counts: Counts) -> Formation:
    """The formation with evaluators, where some are asked for."""
    if not counts.evaluators:
        return formation
    edges = tuple(replace(e, also=("evaluator",)) if e.name == "weights" else e for e in formation.edges)
    make = "starling.roles.actors:make_evaluator"
    watching = Roles("evaluator", counts.evaluators, make, acts="evaluator", reserves=(_NETWORK,))
    return replace(formation, roles=(*formation.roles, watching), edges=edges)


def _averaging(learners: int) -> list[Edge]:
    """The edges among learners that average their gradients."""
    if learners == 1:
        return []
    return [Edge(name, "collective", "learner", "learner", message=blank) for name, blank in _TOGETHER.items()]


def _single(counts: Counts) -> Formation:
    takes = (_STATE, _EXPERIENCE, _NETWORK, _OWN_CHUNK)
    roles = (Roles("learner", 1, "starling.roles.fused:make_single", "learner", "actor", takes),)
    return Formation("single", roles, (), ends="learner", lockstep=True, fused=True)


def _acting_and_learning(name: str) -> Callable[[Counts], Formation]:
    """Actors send chunks to learners, which send weights back and, where several, agree on gradients."""

    def lay_out(counts: Counts) -> Formation:
        actors, learners = counts.actors or 1, counts.learners or 1
        if actors % learners:
            raise ConfigError(f"actors={actors} cannot be shared equally by learners={learners}; use a multiple.")
        lockstep, each = counts.max_lag == 0, actors // learners
        chunks = counts.batch_chunks or each
        if lockstep and chunks % each:
            raise ConfigError(
                f"batch_chunks={chunks}: where nobody runs ahead each of a learner's {each} actors makes as many; use "
                f"a multiple, such as {each * -(-chunks // each)}."
            )
        edges = [
            Edge("experience", "queue", "actor", "learner", counts.queue or 1, True, counted=True, loans=chunks,
                 message=_CHUNK),
            Edge("weights", "broadcast", "learner", "actor", pinned=True, message=_WEIGHTS),
            *_averaging(learners),
        ]  # fmt: skip
        roles = (
            Roles("learner", learners, _LEARNER, "learner", reserves=(_STATE, _EXPERIENCE)),
            Roles("actor", actors, _ACTOR, acts="actor", reserves=(_NETWORK, _OWN_CHUNK)),
        )
        return _watched(Formation(name, roles, tuple(edges), "learner", lockstep), counts)

    return lay_out


def _evolution(counts: Counts) -> Formation:
    """As actors that run ahead, but what was tried with other parameters than the newest is not learned from."""
    formation = _acting_and_learning("evolution")(replace(counts, max_lag=None))
    return replace(formation, fresh=True)


def _gradient_servers(name: str) -> Callable[[Counts], Formation]:
    """Workers act and compute gradients; parameter servers, each with a part of the parameters, apply them."""

    def lay_out(counts: Counts) -> Formation:
        edges = (
            Edge("gradients", "queue", "worker", "server", counts.queue or 1, counted=True, loans=1,
                 message="starling.roles.servers:blank_pushes"),
            Edge("weights", "broadcast", "server", "worker", message="starling.roles.servers:blank_views"),
        )  # fmt: skip
        roles = (
            Roles("server", counts.servers or 1, "starling.roles.servers:make_server", "server", reserves=(_SHARD,)),
            Roles("worker", counts.actors or 1, "starling.roles.servers:make_worker", "worker", "actor",
                  (_STATE, _EXPERIENCE, _NETWORK, _OWN_CHUNK)),
        )  # fmt: skip
        return _watched(Formation(name, roles, edges, ends="server"), counts)

    return lay_out


def _apex(counts: Counts) -> Formation:
    actors, buffers, learners = counts.actors or 1, counts.buffers or 1, counts.learners or 1
    queue, blank = counts.queue or 1, "starling.roles.buffers:blank_"
    edges = (
        Edge("experience", "queue", "actor", "buffer", queue, True, counted=True, loans=1, message=_CHUNK),
        Edge("requests", "queue", "learner", "buffer", queue + 1, True, message=f"{blank}request"),
        Edge("samples", "queue", "buffer", "learner", queue + 1, True, answers="requests", message=f"{blank}sample"),
        Edge("priorities", "queue", "learner", "buffer", queue + 1, True, message=f"{blank}priorities"),
        Edge("weights", "broadcast", "learner", "actor", pinned=True, message=_WEIGHTS),
        *_averaging(learners),
    )
    roles = (
        Roles("learner", learners, "starling.roles.buffers:make_sampling_learner", "learner", reserves=(_STATE,)),
        Roles("buffer", buffers, "starling.roles.buffers:make_buffer", reserves=(_STORED,)),
        Roles("actor", actors, _ACTOR, acts="actor", reserves=(_NETWORK, _OWN_CHUNK)),
    )
    return _watched(Formation("apex", roles, edges, ends="learner", prioritizes=True), counts)


def _central_inference(counts: Counts) -> Formation:
    actors, learners, servers = counts.actors or 1, counts.learners or 1, counts.inference_servers or 1
    if actors % learners or actors % servers:
        raise ConfigError(
            f"actors={actors} cannot be shared equally by learners={learners} and inference_servers={servers}; use a "
            "multiple of both."
        )
    chunks, blank = counts.batch_chunks or actors // learners, "starling.roles.inference:blank_"
    edges = (
        Edge("requests", "queue", "actor", "inference", 1, True, message=f"{blank}request"),
        Edge("replies", "queue", "inference", "actor", 1, True, answers="requests", message=f"{blank}reply"),
        Edge("experience", "queue", "actor", "learner", counts.queue or 1, True, counted=True, loans=chunks,
             message=_CHUNK),
        Edge("weights", "broadcast", "learner", "inference", pinned=True, message=_WEIGHTS),
        *_averaging(learners),
    )  # fmt: skip
    roles = (
        Roles("learner", learners, _LEARNER, "learner", reserves=(_STATE, _EXPERIENCE)),
        Roles("inference", servers, "starling.roles.inference:make_inference", acts="inference",
              reserves=(_NETWORK, _MEMORIES)),
        Roles("actor", actors, "starling.roles.inference:make_remote_actor", reserves=(_OWN_CHUNK,)),
    )  # fmt: skip
    return _watched(Formation("central_inference", roles, edges, "learner", counts.max_lag == 0), counts)


_ACTING: dict[str, Any] = {"actors": 2, "evaluators": 0}
_OWN = {
    kind.name: kind
    for kind in (
        FormationKind("single", "acts and learns in one role", {"overlap": False}, _single, work="in_turn"),
        FormationKind(
            "sync",
            "actors wait for every update, as one process would",
            {**_ACTING, "batch_chunks": None, "max_lag": 0},
            _acting_and_learning("sync"),
            fixed=("max_lag",),
            needs=(ACTS,),
            work="together",
            relief="several learners (--formation allreduce), or one that does not make actors wait "
            "(--formation actor_learner)",
        ),
        FormationKind(
            "async_gradients",
            "workers act and send gradients to a parameter server (A3C, GORILA)",
            {**_ACTING, "queue": 1},
            _gradient_servers("async_gradients"),
            needs=(ACTS, GRADIENTS),
            relief="split the parameters (--formation sharded_ps), or larger batches per gradient",
        ),
        FormationKind(
            "apex",
            "actors fill sharded prioritized buffers, learners draw from them (Ape-X)",
            {**_ACTING, "buffers": 1, "learners": 1, "queue": 2, "samples_per_insert": None},
            _apex,
            needs=(ACTS, REPLAYS),
            old=True,
            relief="lower --samples-per-insert, so that it learns less often, or try the other --backend",
        ),
        FormationKind(
            "actor_learner",
            "actors run ahead of one or more learners, which correct for it (IMPALA)",
            {**_ACTING, "learners": 1, "queue": 1, "batch_chunks": None, "max_lag": None},
            _acting_and_learning("actor_learner"),
            needs=(ACTS, LAG),
            work="ahead",
            relief="add learners (--learners 2) or make batches larger",
        ),
        FormationKind(
            "evolution",
            "actors evaluate perturbed parameters, and send seeds and returns alone (ES)",
            {**_ACTING, "queue": 1},
            _evolution,
            needs=(ACTS, EVALUATES),
        ),
        FormationKind(
            "central_inference",
            "actors hold no network, inference servers act for all of them (SEED)",
            {**_ACTING, "learners": 1, "inference_servers": 1, "queue": 1, "batch_chunks": None, "max_lag": None,
             "inference_batch": 0, "inference_wait": 0.002},
            _central_inference,
            careful=True,
            needs=(ACTS, STEPS),
            work="served",
        ),
        FormationKind(
            "sharded_ps",
            "parameters are split over servers, workers push gradients and pull weights",
            {**_ACTING, "servers": 2, "queue": 1},
            _gradient_servers("sharded_ps"),
            needs=(ACTS, GRADIENTS),
            relief="more servers (--servers), or larger batches per gradient",
        ),
        FormationKind(
            "allreduce",
            "several learners average their gradients and stay identical",
            {**_ACTING, "learners": 2, "batch_chunks": None, "max_lag": 0},
            _acting_and_learning("allreduce"),
            fixed=("max_lag",),
            needs=(ACTS, GRADIENTS),
            relief="more learners, or larger batches",
        ),
    )
}  # fmt: skip
FORMATIONS: Registry[FormationKind] = Registry("formation", _OWN, FormationKind)


def free_settings(name: str) -> dict[str, int | float | None]:
    """The settings that a formation leaves to its user, with their defaults."""
    kind = FORMATIONS[name]
    return {key: value for key, value in kind.defaults.items() if key not in kind.fixed}


def resolved_counts(name: str, counts: Counts) -> Counts:
    """The counts with the formation's defaults filled in; a setting without effect in it is refused."""
    kind, free = FORMATIONS[name], free_settings(name)
    for each in fields(Counts):
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
    return FORMATIONS[name].lay_out(resolved_counts(name, counts or Counts()))
