"""The learning side of an algorithm: its state on a backend, and its compiled ``update``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from starling.algorithms.base import Algorithm
from starling.components.graph.build import Graph, cutter
from starling.core.errors import CheckpointError, RunError
from starling.core.params import Params, with_scopes
from starling.core.random import generator_state, restore_generator, stream
from starling.core.trees import Tree, items, map_leaves, map_with_path
from starling.roles.policy import ACTING

__all__ = ["Learner", "fitted"]


class Learner:
    """Learns from batches; ``version`` counts its updates and names its weights."""

    def __init__(self, graph: Graph, seed: int, summaries: Sequence[str] = (), overlap: bool = False) -> None:
        """With ``overlap`` updates hand out the acting weights too, for ``acting_weights_later``."""
        self.graph = graph
        self.algorithm: Algorithm = graph.root  # type: ignore[assignment]
        self.version = 0
        self._state = self.algorithm.init(graph.parameters())
        then = self._with_acting if overlap else None
        self._update = graph.function("update", donate=(0,), summaries=summaries, then=then)
        self._update_often = graph.function("update_often", donate=(0,), summaries=summaries, then=then)
        self._summarised, self._overlap = bool(summaries), overlap
        self._acting = graph.assembly.scopes_read_by(*ACTING)
        self._cut = cutter(self._read_by_acting(graph.initial))
        self._handed_out: Any = None  # the acting weights of now, joined, where an update made them
        self._rng = stream(seed, "learner", "draws")
        self._metrics: Tree = {}
        self.recorded: dict[str, Any] = {}

    def update(self, batch: Tree, rows: int) -> None:
        """Learn from one batch of ``rows`` steps."""
        self._learn(self._update, batch, self.algorithm.draws(self._rng, rows), 1)

    def update_often(self, batches: Tree, rows: int, times: int) -> None:
        """Learn from ``times`` batches of ``rows`` steps, stacked along the first axis, in one call."""
        draws = [self.algorithm.draws(self._rng, rows) for _ in range(times)]
        self._learn(self._update_often, batches, map_leaves(lambda *each: np.stack(each), *draws), times)

    def _learn(self, update: Callable[..., Any], batch: Tree, draws: Tree, times: int) -> None:
        result = update(self._state, batch, draws)
        if self._summarised:
            result, self.recorded = result
        self._handed_out = None
        if self._overlap:
            result, self._handed_out = result
        self._state, self._metrics = result
        self.version += times

    def _with_acting(self, result: tuple[Tree, Tree]) -> tuple[Any, Any]:
        return result, self.graph.joined(self._read_by_acting(result[0]["params"]))

    def weights(self) -> Params:
        """The parameters as NumPy arrays of their own."""
        return self.graph.fetch(self._state["params"])

    def acting_weights(self) -> Params:
        """Those of the parameters that acting reads."""
        return self.graph.fetch(self._read_by_acting(self._state["params"]))

    def acting_weights_later(self) -> Callable[[], Params]:
        """A call that waits for the acting weights of now; updates may begin before it is made."""
        vector = self._handed_out
        if vector is None:
            vector = self.graph.joined(self._read_by_acting(self._state["params"]))
        return lambda: self._cut(self.graph.backend.array(vector))

    def _read_by_acting(self, params: Tree) -> Params:
        return Params((scope, params[scope]) for scope in self._acting)

    def load_weights(self, params: Tree) -> None:
        """Go on from these parameters; the optimiser starts anew."""
        self._state, self._handed_out = self.algorithm.init(self.graph.place(params)), None

    def priorities(self) -> np.ndarray:
        """What the last update found of each row of its batch, for an algorithm that prioritizes."""
        return np.asarray(self.graph.backend.to_numpy(self._metrics["priorities"]))

    def metrics(self) -> dict[str, float]:
        """The last update's metrics by name; not finite ones end the run."""
        numbers = {name: value for name, value in self._metrics.items() if name != "priorities"}
        values = {path: float(leaf) for path, leaf in items(self.graph.backend.to_numpy(numbers))}
        for name, value in values.items():
            if not np.isfinite(value):
                raise RunError(
                    f"{name} is {value} after {self.version} updates: the learner diverged. "
                    "Lower the learning rate, clip gradients, or check the environment with `starling check-env`."
                )
        return values

    def state(self) -> Tree:
        """Everything needed to go on."""
        learned = map_leaves(lambda leaf: np.array(leaf), self._host_state())
        return {"version": self.version, "learned": learned, "rng": generator_state(self._rng)}

    def restore(self, state: Tree) -> None:
        self.version = int(state["version"])
        restore_generator(self._rng, state["rng"])
        self._state, self._handed_out = self.graph.place(fitted(self._host_state(), state["learned"])), None

    def fitted(self, weights: Tree) -> Params:
        """Weights from a file as this algorithm's parameters; refuses those of another."""
        return with_scopes(fitted(self._host_state()["params"], weights), Params)

    def _host_state(self) -> Tree:
        return with_scopes(self.graph.backend.to_numpy(self._state), dict)


def fitted(template: Tree, tree: Tree) -> Tree:
    """``tree`` checked against ``template``, with the empty scopes that files do not keep."""
    here, there = dict(items(template)), dict(items(tree))
    if here.keys() != there.keys():
        odd = sorted(here.keys() ^ there.keys())
        raise CheckpointError(
            "the parameters of the policy or checkpoint do not belong to this algorithm and network: "
            f"{', '.join(odd[:5])} …"
        )
    for path, leaf in here.items():
        if np.shape(leaf) != np.shape(there[path]):
            raise CheckpointError(f"{path} has shape {np.shape(there[path])}; {np.shape(leaf)} was expected.")
    return map_with_path(lambda path, leaf: np.asarray(there[path], dtype=np.asarray(leaf).dtype), template)
