"""Algorithms that follow the gradient of a loss: most of them.

An algorithm of this kind writes ``loss`` and names its optimisers and slow copies. The update follows, and so do its
two halves, gradients and their application, step by step: so several learners can average gradients, and workers can
send them to servers.

    prepared = algorithm.prepare(state, batch)                          # once per update
    for draws_i in algorithm.steps_of(draws):                           # one, or epochs × minibatches
        gradients, learned, weight = algorithm.gradients(state, prepared, draws_i)
        state = algorithm.apply_gradients(state, gradients)
    state = algorithm.absorb(state, algorithm.observe(batch))           # statistics that no gradient moves

Losses are means over the rows of a batch that count, so gradients of parts of a batch can be averaged.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from starling.algorithms.base import Algorithm, Learned
from starling.backends import ops
from starling.components.base import api
from starling.components.networks.normalisers import ObservationNormaliser, ReturnScale
from starling.components.optimisers import Optimiser
from starling.components.targets import Follow
from starling.core.errors import ConfigError
from starling.core.params import Params
from starling.core.trees import Tree, leaves, map_leaves

__all__ = ["GradientAlgorithm"]


class GradientAlgorithm(Algorithm):
    """See the top of this file. ``update`` is final."""

    optimisers: Mapping[str, Optimiser]
    normaliser: ObservationNormaliser | None  # of observations; None leaves them as they are
    return_scale: ReturnScale | None  # of rewards

    traced: ClassVar[tuple[str, ...]] = ("act", "greedy", "learn")

    @property
    def targets(self) -> Mapping[str, Follow]:
        """The scopes of the parameters that have slow copies, ``state["targets"]``, and how these follow."""
        return {}

    @property
    def exchanges_gradients(self) -> bool:
        return True

    @abstractmethod
    def loss(self, p: Params, state: Tree, batch: Tree, draws: Tree) -> tuple[Any, Learned]:
        """What a gradient step makes smaller, over what ``minibatch`` gives; ``p`` is what it is differentiated by."""

    def prepare(self, state: Tree, batch: Tree) -> Tree:
        """What the gradient steps of one update have in common; by default the batch."""
        return batch

    def minibatch(self, prepared: Tree, draws: Tree) -> Tree:
        """What one gradient step learns from; by default all of it."""
        return prepared

    def observed(self, batch: Tree) -> tuple[Tree, Any]:
        """The observations of a batch that statistics are made of, and 1 for those that count, None if all do."""
        return batch["obs"], batch["mask"] if "mask" in batch else None  # noqa: SIM401

    # -- what follows

    @api
    def learn(self, p: Params, state: Tree, batch: Tree, draws: Tree) -> tuple[Any, Learned]:
        """The loss of an update's first gradient step: what assembling runs."""
        first = map_leaves(lambda x: x[0, ...], draws) if self.many_steps else draws
        return self.loss(p, state, self.minibatch(self.prepare(state, batch), first), first)

    def init(self, params: Params) -> Tree:
        self._check_scopes(params)
        xp = ops(leaves(params)[0])
        return {
            "params": params,
            "targets": Params((s, map_leaves(lambda leaf: leaf + 0, params[s])) for s in self.targets),  # copies: both
            "optimisers": {n: o.init(self.moved_by(o, params)) for n, o in self.optimisers.items()},  # may be donated
            "count": xp.zeros((), dtype=xp.int32),
            "progress": xp.zeros((), dtype=xp.float32),
        }

    def steps_of(self, draws: Tree) -> list[Tree]:
        """The draws of each gradient step of one update."""
        if not self.many_steps:
            return [draws]
        return [map_leaves(lambda x, i=i: x[i], draws) for i in range(len(leaves(draws)[0]))]

    def gradients(self, state: Tree, prepared: Tree, draws: Tree) -> tuple[Tree, Learned, Any]:
        """The gradients of one step, for the parameters that optimisers move, and their weight: the rows that count."""
        still = self._still(state["params"])

        def loss(moving: Params, state: Tree, batch: Tree, draws: Tree) -> tuple[Any, Learned]:
            return self.loss(Params({**moving, **still}), state, batch, draws)

        batch = self.minibatch(prepared, draws)
        xp = ops(leaves(batch)[0])
        (_, learned), gradients = xp.value_and_grad(loss)(self.moving(state["params"]), state, batch, draws)
        weight = xp.sum(batch["mask"]) if "mask" in batch else xp.asarray(float(leaves(batch)[0].shape[0]))
        return gradients, learned, weight

    def apply_gradients(self, state: Tree, gradients: Tree) -> Tree:
        """The state after one step along ``gradients``."""
        count, params = state["count"] + 1, Params(state["params"])
        optimisers = {}
        for name, optimiser in self.optimisers.items():
            before = (self.moved_by(optimiser, params), state["optimisers"][name])
            step = lambda p, g, s, o=optimiser: o.step(p, g, s, state["progress"])  # noqa: E731
            given = (before[0], self.moved_by(optimiser, gradients), before[1])
            if optimiser.period == 1:
                moved, optimisers[name] = step(*given)
            else:
                due = count % optimiser.period == 0
                moved, optimisers[name] = ops(count).cond(due, step, lambda p, g, s: (p, s), *given)
            params.update(moved)
        targets = Params((s, follow(state["targets"][s], params[s], count)) for s, follow in self.targets.items())
        return {**state, "params": params, "targets": targets, "optimisers": optimisers, "count": count}

    def observe(self, batch: Tree) -> Tree:
        """The statistics of a batch that no gradient moves, by scope."""
        found = {}
        obs, mask = self.observed(batch)
        if self.normaliser is not None:
            found["normaliser"] = self.normaliser.moments(obs, mask)
        if self.return_scale is not None:
            found["return_scale"] = self.return_scale.moments(batch["discounted_return"], mask)
        return found

    def absorb(self, state: Tree, statistics: Tree) -> Tree:
        """The state with the statistics of a batch added to those of all before it."""
        if not statistics:
            return state
        params = Params(state["params"])
        for scope, moments in statistics.items():
            params[scope] = getattr(self, scope).merged(params[scope], moments)
        return {**state, "params": params}

    def update(self, state: Tree, batch: Tree, draws: Tree) -> tuple[Tree, Learned]:
        prepared = self.prepare(state, batch)

        def step(state: Tree, draws: Tree) -> tuple[Tree, Learned]:
            gradients, learned, _ = self.gradients(state, prepared, draws)
            return self.apply_gradients(state, gradients), learned

        if self.many_steps:
            xp = ops(leaves(batch)[0])
            state, learned = xp.scan(step, state, draws)
            learned = map_leaves(lambda x: xp.mean(x, axis=0), learned)
        else:
            state, learned = step(state, draws)
        return self.absorb(state, self.observe(batch)), learned

    # -- which parameters learn

    def moving(self, params: Tree) -> Params:
        """The parameters that an optimiser moves: all but statistics."""
        return Params((scope, child) for scope, child in params.items() if scope not in STATISTICS)

    def _still(self, params: Tree) -> Params:
        return Params((scope, child) for scope, child in params.items() if scope in STATISTICS)

    def moved_by(self, optimiser: Optimiser, params: Tree) -> Params:
        moving = self.moving(params)
        return Params((s, moving[s]) for s in optimiser.scopes if s in moving) if optimiser.scopes else moving

    def _check_scopes(self, params: Tree) -> None:
        """Refuse an optimiser of scopes in which nothing learns."""
        moving = self.moving(params)
        for name, optimiser in self.optimisers.items():
            unknown = [scope for scope in optimiser.scopes if scope not in moving]
            if unknown or not leaves(self.moved_by(optimiser, params)):
                there = [scope for scope, child in moving.items() if leaves(child)]
                raise ConfigError(
                    f"optimiser {name!r} is to move {', '.join(map(repr, unknown or optimiser.scopes))}, where no "
                    f"parameter learns; the scopes there are: {', '.join(sorted(there))}."
                )


STATISTICS = ("normaliser", "return_scale")  # scopes that no gradient moves
