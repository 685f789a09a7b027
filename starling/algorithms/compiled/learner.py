"""The learning side of an algorithm: its state on a backend, and its compiled ``update``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from starling.algorithms.base import Algorithm, Learned
from starling.algorithms.compiled.policy import acting_scopes
from starling.algorithms.compiled.shards import state_part
from starling.algorithms.gradient import GradientAlgorithm
from starling.components.graph.build import Graph, cutter
from starling.components.optimisers import clip_by_global_norm
from starling.core.errors import CheckpointError, RunError
from starling.core.params import Params, with_scopes
from starling.core.random import generator_state, restore_generator, stream
from starling.core.trees import Tree, items, map_leaves, map_with_path

__all__ = ["GradientLearner", "Learner", "fitted"]


class Learner:
    """Learns from batches; ``version`` counts its updates and names its weights."""

    def __init__(
        self,
        graph: Graph,
        seed: int,
        summaries: Sequence[str] = (),
        index: int = 0,
        promises: bool = False,
        shard: set[str] | None = None,
    ) -> None:
        """With ``promises`` updates hand out the acting weights too, for ``promised_weights``. A ``shard`` of the
        parameters is all that the learner of a parameter server has."""
        self.graph = graph
        self.algorithm: Algorithm = graph.root  # type: ignore[assignment]
        self.plan, self.version = self.algorithm.plan, 0
        self._arrived = -1  # the newest version of which weights were fetched: its update is done
        self._acting = acting_scopes(graph.assembly)
        state = graph.init(graph.initial)
        self._hold(state if shard is None else graph.scoped(state_part(state, shard)))
        self._summaries, self._promises = list(summaries), promises
        self._compiled: dict[str, Callable[..., Any]] = {}
        self._cut = cutter(self._read_by_acting(graph.initial))
        self._rng = stream(seed, "learner", *((index,) if index else ()), "draws")
        self._learned = Learned({})
        self.recorded: dict[str, Any] = {}

    def update(self, batch: Tree, progress: float, updates: int = 1) -> None:
        """Learn from one batch or, with ``updates``, from so many, stacked along the first axis, in one call."""
        if updates == 1:
            draws = self.algorithm.draws(self._rng, batch)
            self._learn("update_at", batch, draws, progress)
        else:
            each = [map_leaves(lambda x, i=i: x[i], batch) for i in range(updates)]
            drawn = [self.algorithm.draws(self._rng, one) for one in each]
            self._learn("update_often", batch, map_leaves(lambda *x: np.stack(x), *drawn), progress)
        self.version += updates

    def _learn(self, api: str, batch: Tree, draws: Tree, progress: float) -> None:
        if api not in self._compiled:
            then = self._with_acting if self._promises else None
            self._compiled[api] = self.graph.function(api, donate=(0,), summaries=self._summaries, then=then)
        result = self._compiled[api](self._state, batch, draws, np.float32(progress))
        if self._summaries:
            result, self.recorded = result
        handed_out = None
        if self._promises:
            result, handed_out = result
        state, self._learned = result
        self._hold(state, handed_out)

    def _hold(self, state: Tree, handed_out: Any = None) -> None:
        """``state`` is the state of now; ``handed_out`` are its acting weights, joined, where an update made them."""
        self._state, self._handed_out = state, handed_out
        self._fetched: Params | None = None

    def _with_acting(self, result: tuple[Tree, Learned]) -> tuple[Any, Any]:
        return result, self.graph.joined(self._read_by_acting(result[0]["params"]))

    def ticket(self) -> Callable[[], None]:
        """A call that returns when the last update is done, and the memory of its batch may be written to again."""
        version, metrics = self.version, self._learned.metrics
        return lambda: None if self._arrived >= version else self.graph.backend.wait(metrics)

    # -- weights

    def weights(self) -> Params:
        """The parameters as NumPy arrays of their own."""
        return self.graph.fetch(self._state["params"])

    def acting_weights(self) -> Params:
        """Those of the parameters that acting reads; the same arrays until an update changes them."""
        if self._fetched is None:
            self._fetched, self._arrived = self.graph.fetch(self._read_by_acting(self._state["params"])), self.version
        return self._fetched

    def promised_weights(self) -> Callable[[], Params]:
        """A call that waits for the acting weights of now; updates may begin before it is made."""
        vector = self._handed_out
        if vector is None:
            vector = self.graph.joined(self._read_by_acting(self._state["params"]))
        return lambda: self._cut(self.graph.backend.array(vector))

    def _read_by_acting(self, params: Tree) -> Params:
        return Params({scope: params[scope] for scope in self._acting})

    def _copied(self, tree: Tree) -> Any:
        return with_scopes(tree, Params, lambda leaf: np.array(self.graph.backend.array(leaf)))

    def load_weights(self, params: Tree) -> None:
        """Go on from these parameters; the optimiser starts anew."""
        self._hold(self.graph.init(with_scopes(params, Params)))

    # -- what was learned

    def priorities(self) -> np.ndarray:
        """What the last update found of each row of its batch, for a plan that prioritizes."""
        return np.asarray(self.graph.backend.to_numpy(self._learned.priorities))

    def metrics(self) -> dict[str, float]:
        """The last update's metrics by name; not finite ones end the run."""
        values = {path: float(leaf) for path, leaf in items(self.graph.backend.to_numpy(self._learned.metrics))}
        for name, value in values.items():
            if not np.isfinite(value):
                raise RunError(
                    f"{name} is {value} after {self.version} updates: the learner diverged. "
                    "Lower the learning rate, clip gradients, or check the environment with `starling check-env`."
                )
        return values

    # -- saving

    def state(self) -> Tree:
        """Everything needed to go on."""
        learned = map_leaves(np.array, self._host_state())
        return {"version": self.version, "learned": learned, "rng": generator_state(self._rng)}

    def restore(self, state: Tree) -> None:
        self.version = int(state["version"])
        restore_generator(self._rng, state["rng"])
        self._hold(self.graph.place(fitted(self._host_state(), state["learned"])))

    def fitted(self, weights: Tree) -> Params:
        """Weights from a file as this algorithm's parameters; refuses those of another."""
        return with_scopes(fitted(self._host_state()["params"], weights), Params)

    def _host_state(self) -> Tree:
        return with_scopes(self.graph.backend.to_numpy(self._state), dict)


class GradientLearner(Learner):
    """A learner whose gradients can be looked at before they are applied."""

    algorithm: GradientAlgorithm

    def gradient_steps(self, batch: Tree, progress: float) -> Iterator[tuple[Tree, float, bool]]:
        """The gradients of each step of an update, as NumPy arrays, their weight, and whether it is the last.

        What they are gradients of may change from one to the next. Averaged by weight, the gradients of parts of a
        batch are those of the whole.
        """
        self._hold({**self._state, "progress": self.graph.place(np.float32(progress))})
        prepared = self._api("prepare")(self._state, batch)
        steps = self.algorithm.steps_of(self.algorithm.draws(self._rng, batch))
        for i, draws in enumerate(steps):
            result = self._api("gradients", self._summaries)(self._state, prepared, draws)
            if self._summaries:
                result, self.recorded = result
            gradients, self._learned, weight = result
            yield self._copied(gradients), float(weight), i == len(steps) - 1

    def statistics(self, batch: Tree) -> Tree:
        """What of a batch no gradient moves, as NumPy arrays."""
        return self._copied(self._api("observe")(batch))

    def absorb(self, statistics: Tree) -> None:
        """Add the statistics of a batch to those of all before it."""
        if statistics:
            self._hold(self._api("absorb", donate=(0,))(self._state, self.graph.place(statistics)))

    def apply(self, gradients: Tree, progress: float) -> None:
        """Take one step along these gradients."""
        state = {**self._state, "progress": self.graph.place(np.float32(progress))}
        self._hold(self._api("apply_gradients", donate=(0,))(state, self.graph.place(gradients)))

    def clipped(self, gradients: Tree) -> Tree:
        """The gradients as the optimisers would clip them, each its own."""
        found = Params(gradients)
        for optimiser in self.algorithm.optimisers.values():
            if optimiser.clip:
                found.update(clip_by_global_norm(self.algorithm.moved_by(optimiser, gradients), optimiser.clip))
        return found

    def view(self) -> Tree:
        """What others need to compute gradients from this state on: all of it but the optimisers' slots."""
        return self._copied({name: part for name, part in self._state.items() if name != "optimisers"})

    def see(self, view: Tree) -> None:
        """Compute gradients from this state on."""
        self._hold(self.graph.place(view))

    def _api(self, name: str, summaries: Sequence[str] = (), donate: Sequence[int] = ()) -> Callable[..., Any]:
        if name not in self._compiled:
            self._compiled[name] = self.graph.function(name, donate, summaries)
        return self._compiled[name]


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
