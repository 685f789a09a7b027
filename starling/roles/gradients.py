"""Learning in two halves: gradients here, their application here or elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from starling.algorithms.base import Algorithm
from starling.components.graph.build import Graph
from starling.components.optimisers import clip_by_global_norm
from starling.core.errors import ConfigError
from starling.core.params import Params, with_scopes
from starling.core.random import stream
from starling.core.trees import Tree, items, map_leaves
from starling.roles.learner import Learner

__all__ = ["GradientLearner", "Keeper", "merged", "part_of", "read_by_gradients", "shards_of"]


def read_by_gradients(state: Tree) -> Tree:
    """What of a learner's state a worker needs to compute gradients: all but the optimiser's slots."""
    return {**state, "optimiser": {"count": state["optimiser"]["count"]}}


class GradientLearner(Learner):
    """A learner whose gradients can be looked at before they are applied."""

    def __init__(self, graph: Graph, seed: int, summaries: Sequence[str] = (), index: int = 0) -> None:
        super().__init__(graph, seed, summaries)
        if index:
            self._rng = stream(seed, "learner", index, "draws")
        self._prepare = graph.function("prepare")
        self._gradients = graph.function("gradients", summaries=summaries)
        self._apply = graph.function("apply_gradients", donate=(0,))

    def gradient_steps(self, batch: Tree, rows: int) -> Iterator[tuple[Tree, bool]]:
        """The gradients of each step of an update, as NumPy arrays, and whether it is the last.

        What they are gradients of may change from one to the next.
        """
        prepared = self._prepare(self._state, batch)
        steps = self.algorithm.steps_of(self.algorithm.draws(self._rng, rows))
        for i, draws in enumerate(steps):
            result = self._gradients(self._state, prepared, draws)
            if self._summarised:
                result, self.recorded = result
            gradients, self._metrics = result
            yield map_leaves(np.array, with_scopes(self.graph.backend.to_numpy(gradients), Params)), i == len(steps) - 1

    def clipped(self, gradients: Tree) -> Tree:
        """The gradients as the optimiser would clip them."""
        limit = self.algorithm.optimiser.clip
        return clip_by_global_norm(gradients, limit) if limit else gradients

    def apply(self, gradients: Tree) -> None:
        """Take one step along these gradients."""
        self._state = self._apply(self._state, self.graph.place(gradients))

    def see(self, view: Tree) -> None:
        """Compute gradients from this state on; see ``read_by_gradients``."""
        self._state = self.graph.place(view)


class Keeper:
    """A shard of the learner's state, to which gradients of its parameters are applied."""

    def __init__(self, graph: Graph, shard: set[str]) -> None:
        self.graph, self.version = graph, 0
        algorithm: Algorithm = graph.root  # type: ignore[assignment]
        self._state = _part(algorithm.init(graph.parameters()), shard)
        self._apply = graph.function("apply_gradients", donate=(0,))

    def apply(self, gradients: Tree) -> None:
        self._state = self._apply(self._state, self.graph.place(gradients))
        self.version += 1

    def view(self) -> Tree:
        """What workers need of the shard, as NumPy arrays of their own."""
        return self._host(read_by_gradients(self._state))

    def weights(self) -> Params:
        return self._host(self._state["params"])

    def state(self) -> Tree:
        return {"version": self.version, "kept": with_scopes(self._host(self._state), dict)}

    def restore(self, state: Tree) -> None:
        self.version = int(state["version"])
        kept = dict(items(state["kept"]))
        host = self._host(self._state)
        paths = iter([path for path, _ in items(host)])
        self._state = self.graph.place(map_leaves(lambda leaf: np.asarray(kept[next(paths)], leaf.dtype), host))

    def _host(self, tree: Tree) -> Any:
        return map_leaves(np.array, with_scopes(self.graph.backend.to_numpy(tree), Params))


def shards_of(sizes: dict[str, int], servers: int) -> list[set[str]]:
    """The parameters' paths, shared out so that the servers hold about as much each."""
    if servers > len(sizes):
        raise ConfigError(f"servers={servers} for {len(sizes)} parameter arrays; use at most one server for each.")
    shards: list[set[str]] = [set() for _ in range(servers)]
    loads = [0] * servers
    for path, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        least = loads.index(min(loads))
        shards[least].add(path)
        loads[least] += size
    return shards


def _part(tree: Tree, shard: set[str]) -> Tree:
    """The tree with the parameters of the shard alone; what is no parameter stays."""
    if not isinstance(tree, dict):
        return tree
    if isinstance(tree, Params) or set(tree) & {path.split(".")[0] for path in shard}:
        return part_of(tree, shard)
    return {name: _part(child, shard) for name, child in tree.items()}


def part_of(params: Tree, shard: set[str], path: str = "") -> Params:
    """The parameters of the shard; scopes stay even where they are empty."""
    found = Params()
    for name, child in params.items():
        here = f"{path}.{name}" if path else name
        if isinstance(child, dict):
            found[name] = part_of(child, shard, here)
        elif here in shard:
            found[name] = child
    return found


def merged(parts: list[Tree]) -> Params:
    """The tree whose parts several servers hold."""
    whole = Params()

    def put(into: Params, part: Tree) -> None:
        for name, child in part.items():
            if isinstance(child, dict):
                put(into.setdefault(name, Params()), child)
            else:
                into[name] = child

    for part in parts:
        put(whole, part)
    return whole
