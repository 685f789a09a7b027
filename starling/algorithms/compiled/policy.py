"""The acting side of an algorithm: its compiled ``act`` on a backend, with the weights it was last given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from starling.algorithms.base import Algorithm, Choice
from starling.components.graph.assembly import Assembly
from starling.components.graph.build import Graph
from starling.core.params import Params, with_scopes
from starling.core.trees import Tree, leaves, map_leaves, refilled
from starling.experience.plan import Perturbable

__all__ = ["Policy", "acting_part", "acting_scopes", "changed", "memory_where"]


def acting_scopes(assembly: Assembly) -> list[str]:
    """The scopes of the parameters that acting reads."""
    algorithm: Algorithm = assembly.root  # type: ignore[assignment]
    return assembly.scopes_read_by(*(api for api in algorithm.traced if api != "learn"))


def acting_part(assembly: Assembly, params: Tree) -> Params:
    """Those of the parameters that acting reads."""
    return Params({scope: params[scope] for scope in acting_scopes(assembly)})


class Policy(Perturbable):
    """Chooses actions for a batch of observations; arrays in and out are NumPy."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.algorithm: Algorithm = graph.root  # type: ignore[assignment]
        self._to_numpy = graph.backend.to_numpy
        self._direct = graph.backend.name == "numpy"
        self._compiled: dict[str, Callable[..., Any]] = {}
        self._act, self._greedy = self._function("act"), self._function("greedy")
        self.load(acting_part(graph.assembly, graph.initial), 0)

    def _function(self, api: str) -> Callable[..., Any]:
        if api not in self._compiled:
            self._compiled[api] = self.graph.function(api, split=())
        return self._compiled[api]

    def load(self, params: Tree, version: int) -> None:
        """Act with these NumPy parameters, which nobody writes to again, from now on; ``version`` names them."""
        self.weights, self.version = params, version
        self.perturb(None)

    def perturb(self, change: Callable[[np.ndarray], np.ndarray] | None) -> None:
        params = self.weights if change is None else changed(self.weights, change)
        self._params = params if self._direct else self.graph.place(params)

    def no_memory(self, rows: int) -> Params:
        """The memory of environments whose episodes begin, [B, …]."""
        return with_scopes(self.algorithm.memory.ranked(batch=True).zeros((rows,)), Params)

    def act(self, obs: Tree, memory: Tree, noise: np.ndarray, explore: np.ndarray) -> Choice:
        """Actions [B, …], the memory after them, and the algorithm's extras."""
        chosen: Choice = self._act(self._params, obs, memory, noise, explore)
        return chosen if self._direct else self._to_numpy(chosen)

    def greedy(self, obs: Tree, memory: Tree) -> Choice:
        """The actions believed best, and the memory after them."""
        chosen: Choice = self._greedy(self._params, obs, memory)
        return chosen if self._direct else self._to_numpy(chosen)

    def values(self, obs: Tree, memory: Tree) -> np.ndarray:
        """The values of observations [B, …] -> [B], for an algorithm that has them."""
        return np.asarray(self._to_numpy(self._function("values")(self._params, obs, memory)))

    def priorities(self, batch: Tree) -> np.ndarray:
        """The priorities of new items [B], for an algorithm that has them."""
        return np.asarray(self._to_numpy(self._function("priorities")(self._params, batch)))


def changed(params: Tree, change: Callable[[np.ndarray], np.ndarray]) -> Tree:
    """The parameters after ``change`` of all of them as one vector."""
    flat = leaves(params)
    vector = change(np.concatenate([leaf.reshape(-1) for leaf in flat]))
    ends = np.cumsum([leaf.size for leaf in flat])
    parts = np.split(vector, ends[:-1])
    return refilled(params, (part.reshape(leaf.shape) for part, leaf in zip(parts, flat)))


def memory_where(memory: Tree, first: np.ndarray) -> Tree:
    """The memory [B, …] with the rows whose episode begins set to zero; never written into."""
    return map_leaves(lambda x: np.where(first.reshape(-1, *(1 for _ in x.shape[1:])), np.zeros_like(x), x), memory)
