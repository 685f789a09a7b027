"""One that acts and one that learns."""

from __future__ import annotations

from starling.formations import Counts, Edge, Formation, Roles
from starling.formations.catalogue import ACTS, FormationKind

__all__ = ["DUO"]


def _lay_out(counts: Counts) -> Formation:
    roles = (
        Roles("learner", 1, "starling.roles.learning:make_learner"),
        Roles("actor", 1, "starling.roles.actors:make_actor"),
    )
    edges = (
        Edge("experience", "queue", "actor", "learner", counted=True, message="starling.roles.actors:blank_chunk"),
        Edge("weights", "broadcast", "learner", "actor", message="starling.roles.learning:blank_weights"),
    )
    return Formation("sample_duo", roles, edges, ends="learner", lockstep=True)


DUO = FormationKind("sample_duo", "one actor waits for every update of one learner", {}, _lay_out, needs=(ACTS,))
