"""What the code of a role is made from: the run as a role sees it."""

from __future__ import annotations

from typing import Any, Protocol

from starling.algorithms.base import Algorithm
from starling.components.graph.assembly import Assembly
from starling.components.graph.build import Graph
from starling.core.params import Params
from starling.core.trees import Tree
from starling.envs import Envs
from starling.experience.plan import Plan
from starling.formations import Counts, Formation, RoleId, Start
from starling.roles.learner import Learner
from starling.roles.run_counters import Reporter, RunLength

__all__ = ["Context"]


class Context(Protocol):
    """A factory of a role, ``make(context, role, start)``, is given this; see ``Formation``."""

    algorithm: Algorithm
    assembly: Assembly
    formation: Formation
    counts: Counts
    seed: int
    length: RunLength

    whole_plan: Plan  # of all learners together
    batch_chunks: int  # chunks that a learner takes for a batch
    chunks_per_actor: int  # those of each of its actors, in lockstep

    @property
    def plan(self) -> Plan:
        """The plan of each learner or worker: its part of every batch."""

    @property
    def initial(self) -> Params:
        """The first parameters, without a backend."""

    @property
    def summaries(self) -> list[str]:
        """The inner values that learners record, by component path."""

    def acting_graph(self, role: RoleId) -> Graph:
        """On the devices that roles of this kind act with; ``learning_graph``, that they learn with."""

    def learning_graph(self, role: RoleId) -> Graph: ...

    def envs(self, count: int, *who: Any) -> Envs:
        """Environments of a role; ``who`` names it, and so their seeds."""

    def reporter(self, learner: Learner) -> Reporter:
        """What a learner reports."""

    def evaluate(self, policy: Any, envs: Envs) -> dict[str, float]:
        """A few greedy episodes."""

    def restored(self, role: RoleId, start: Start) -> Tree | None:
        """The state that the role goes on from; None to begin anew."""
