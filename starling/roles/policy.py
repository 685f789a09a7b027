"""The acting side of an algorithm: its compiled ``act`` on a backend, with the weights it was last given."""

from __future__ import annotations

from typing import Any

import numpy as np

from starling.components.build import Graph
from starling.core.params import Params
from starling.core.trees import Tree

__all__ = ["Policy"]


class Policy:
    """Chooses actions for a batch of observations; arrays in and out are NumPy."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.algorithm = graph, graph.root
        acting = graph.assembly.scopes_read_by("act", "greedy", "values")
        self.load(Params({scope: graph.initial[scope] for scope in acting}), 0)
        self._act, self._greedy = graph.function("act"), graph.function("greedy")
        self._values: Any = None
        self._to_numpy = graph.backend.to_numpy
        self._direct = graph.backend.name == "numpy"

    @property
    def version(self) -> int:
        """Of the weights it acts with."""
        return self.weights["version"]

    def load(self, params: Tree, version: int) -> None:
        """Act with these NumPy parameters from now on."""
        self.weights = {"params": params, "version": version}
        self._params = self.graph.place(params)

    def act(self, obs: Tree, noise: np.ndarray, explore: float) -> dict[str, Any]:
        """``{"action": …}`` and the algorithm's extras, [B, …]."""
        chosen = self._act(self._params, obs, noise, np.array(explore, np.float32))
        return chosen if self._direct else {name: self._to_numpy(value) for name, value in chosen.items()}

    def greedy(self, obs: Tree) -> np.ndarray:
        """The actions believed best, [B, …]."""
        return np.asarray(self._to_numpy(self._greedy(self._params, obs)))

    def values(self, obs: Tree) -> np.ndarray:
        """The values of observations [B, …] -> [B], for an algorithm that has them."""
        if self._values is None:
            self._values = self.graph.function("values")
        return np.asarray(self._to_numpy(self._values(self._params, obs)))
