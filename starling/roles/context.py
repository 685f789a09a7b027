"""What the code of roles is made from: a run as its roles see it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from starling.algorithms.base import Algorithm, inputs_of
from starling.algorithms.compiled.backends import Backends, choose_backends, limit_threads
from starling.algorithms.compiled.learner import Learner
from starling.algorithms.compiled.policy import Policy
from starling.algorithms.compiled.summaries import Summaries, check_summaries, component_patterns
from starling.backends import get_backend
from starling.components.graph.assembly import Assembly, assemble
from starling.components.graph.build import Graph, build, create_parameters
from starling.core.params import Params
from starling.core.trees import Tree
from starling.envs import Envs
from starling.experience.plan import Plan
from starling.formations import FORMATIONS, Counts, Formation, Placement, RoleId, Start, form
from starling.roles.run_counters import Reporter, RunLength

__all__ = ["Context"]


class Context(ABC):
    """A factory of a role, ``make(context, role, start)``, is given this; see ``Formation``."""

    def __init__(
        self,
        algorithm: Algorithm,
        formation: str,
        counts: Counts,
        length: RunLength,
        seed: int,
        backends: tuple[str, str] = ("auto", "auto"),
        devices: Mapping[str, tuple[str, ...]] | None = None,
        summaries: Sequence[str] = (),
    ) -> None:
        """``backends`` learn and act; ``summaries`` are the inner values that learners record."""
        self.algorithm, self.counts, self.length, self.seed = algorithm, counts, length, seed
        laid_out = form(formation, counts)
        actors, learners, self.workers = (laid_out.count(kind) for kind in ("actor", "learner", "worker"))
        self.whole_plan: Plan = algorithm.plan  # of all learners together
        self.plan = self.whole_plan.shared(max(1, learners, self.workers))  # of each: its part of every batch
        acting = max(1, actors // max(1, learners))
        self.batch_chunks = counts.batch_chunks or self.plan.chunks(acting)  # that a learner takes for a batch
        # that each of its actors makes with the same weights; 0 where it runs ahead
        self.lockstep_chunks = max(1, self.batch_chunks // acting) if laid_out.lockstep else 0
        self.envs_per_actor = self.plan.envs if self.workers else self.plan.envs_per_actor(self.batch_chunks)
        self.formation: Formation = FORMATIONS[formation].lay_out(replace(counts, batch_chunks=self.batch_chunks))
        self.placement = Placement(self.formation, devices or {})
        self._asked, self._summaries = backends, list(summaries)
        self._graphs: dict[tuple[str, tuple[str, ...]], Graph] = {}

    # -- networks

    @cached_property
    def assembly(self) -> Assembly:
        assembly = assemble(self.algorithm, inputs_of(self.algorithm), self.algorithm.traced)
        check_summaries(self.algorithm.name, self._summaries, assembly)
        return assembly

    @cached_property
    def backends(self) -> Backends:
        return choose_backends(self.assembly, *self._asked)

    @cached_property
    def initial(self) -> Params:
        """The first parameters, without a backend."""
        return create_parameters(self.assembly, self.seed)

    def _graph(self, backend: str, devices: tuple[str, ...] = ()) -> Graph:
        """One graph for all that compute on the same devices."""
        if (backend, devices) not in self._graphs:
            limit_threads(self.assembly, backend, len(list(self.formation)))
            self._graphs[backend, devices] = build(self.assembly, get_backend(backend), self.seed, devices)
        return self._graphs[backend, devices]

    def learning_graph(self, role: RoleId) -> Graph:
        return self._graph(self.backends.learn, self.placement.of(role)[0])

    def policy(self, role: RoleId | None = None) -> Policy:
        """What a role acts with; without one, what acts when the run is over, on the default device."""
        return Policy(self._graph(self.backends.act, () if role is None else self.placement.of(role)[1]))

    # -- what learners record

    @property
    def summaries(self) -> list[str]:
        """The inner values that learners record, by component path."""
        return component_patterns(self.algorithm.name, self._summaries)

    def reporter(self, learner: Learner) -> Reporter:
        """What a learner reports."""
        summaries, name = Summaries(self.algorithm.name, self._summaries), self.algorithm.name

        def report() -> tuple[dict[str, float], dict[str, Any]]:
            values = {f"{name}.{key}": value for key, value in learner.metrics().items()} | {"updates": learner.version}
            means, histograms = summaries.take(values, learner.recorded)
            return {**values, **means}, histograms

        return report

    # -- what the run has

    @abstractmethod
    def envs(self, count: int, *who: Any) -> Envs:
        """Environments of a role; ``who`` names it, and so their seeds."""

    @abstractmethod
    def restored(self, role: RoleId, start: Start) -> Tree | None:
        """The state that the role goes on from; None to begin anew."""
