"""The acting side of an algorithm: its compiled ``act`` on a backend, with the weights it was last given.

A policy is *here*, or it is a RemotePolicy: then its methods are generators whose effects ask an inference server.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, ClassVar

import numpy as np

from starling.algorithms.base import Algorithm
from starling.components.graph.build import Graph
from starling.core.effects import Effect, Put, Take
from starling.core.params import Params
from starling.core.trees import Tree

__all__ = ["ACT", "ACTING", "VALUES", "AnyPolicy", "Policy", "RemotePolicy"]

ACT, VALUES = 0, 1  # what a request asks for
ACTING = ("act", "greedy", "values", "priorities")  # the APIs that acting calls, where an algorithm has them


class Policy:
    """Chooses actions for a batch of observations; arrays in and out are NumPy."""

    here: ClassVar[bool] = True

    def __init__(self, graph: Graph) -> None:
        self.graph, self.algorithm = graph, graph.root
        acting = graph.assembly.scopes_read_by(*ACTING)
        self.load(Params({scope: graph.initial[scope] for scope in acting}), 0)
        self._act, self._greedy = graph.function("act"), graph.function("greedy")
        self._values: Any = None
        self._priorities: Any = None
        self.began = 0
        self._to_numpy, self._array = graph.backend.to_numpy, graph.backend.array
        self._direct = graph.backend.name == "numpy"
        self._explore, self._explore_array = 0.0, np.zeros((), np.float32)

    @property
    def version(self) -> int:
        """Of the weights it acts with."""
        return self.weights["version"]

    def begin(self) -> None:
        """Note which weights a chunk of experience begins with: ``began`` is their version."""
        self.began = self.version

    def load(self, params: Tree, version: int) -> None:
        """Act with these NumPy parameters from now on."""
        self.weights = {"params": params, "version": version}
        self._params = self.graph.place(params)

    def act(self, obs: Tree, noise: np.ndarray, explore: float) -> dict[str, Any]:
        """``{"action": …}`` and the algorithm's extras, [B, …]."""
        if explore != self._explore:  # seldom: making an array costs as much as a small sum
            self._explore, self._explore_array = explore, np.array(explore, np.float32)
        chosen = self._act(self._params, obs, noise, self._explore_array)
        return chosen if self._direct else {name: self._array(value) for name, value in chosen.items()}

    def greedy(self, obs: Tree) -> np.ndarray:
        """The actions believed best, [B, …]."""
        return np.asarray(self._to_numpy(self._greedy(self._params, obs)))

    def values(self, obs: Tree) -> np.ndarray:
        """The values of observations [B, …] -> [B], for an algorithm that has them."""
        if self._values is None:
            self._values = self.graph.function("values")
        return np.asarray(self._to_numpy(self._values(self._params, obs)))

    def priorities(self, batch: Tree) -> np.ndarray:
        """The priorities of new transitions [B], for an algorithm that has them."""
        if self._priorities is None:
            self._priorities = self.graph.function("priorities", split=())
        return np.asarray(self._to_numpy(self._priorities(self._params, batch)))


class RemotePolicy:
    """Asks an inference server; ``after`` is the number of published weights that it must have seen."""

    here: ClassVar[bool] = False

    def __init__(self, algorithm: Algorithm, rows: int) -> None:
        self.algorithm, self.version, self.after = algorithm, 0, 1
        self.began = -1
        self._idle = algorithm.act_noise(np.random.default_rng(0), (rows,))

    def begin(self) -> None:
        """Note which weights answer first: ``began`` is their version."""
        self.began = -1

    def act(self, obs: Tree, noise: np.ndarray, explore: float) -> Generator[Effect, Any, dict[str, Any]]:
        reply = yield from self._ask(ACT, obs, noise, explore)
        return dict(reply["chosen"])

    def values(self, obs: Tree) -> Generator[Effect, Any, np.ndarray]:
        reply = yield from self._ask(VALUES, obs, self._idle, 0.0)
        return reply["values"]

    def _ask(self, kind: int, obs: Tree, noise: np.ndarray, explore: float) -> Generator[Effect, Any, Tree]:
        request = {"kind": np.int64(kind), "after": np.int64(self.after), "obs": obs, "noise": noise}
        yield Put("requests", {**request, "explore": np.float32(explore)})
        reply = (yield Take(("replies",))).item
        self.version = int(reply["version"])
        if self.began < 0:
            self.began = self.version
        return reply


AnyPolicy = Policy | RemotePolicy
