"""Normalisers: components with statistics that no gradient moves.

    moments = normaliser.moments(obs, mask)             # of one batch
    scope = normaliser.merged(p.normaliser, moments)    # the statistics with that batch added

The statistics are parameters, so they travel with the weights, to actors, checkpoints and evaluation. The algorithm
adds each batch after it has learned from it, so that a batch is learned from with the statistics that acted.
"""

from __future__ import annotations

from typing import Any, ClassVar

from starling.backends import ops
from starling.components.base import Component, api
from starling.components.networks import initialisers
from starling.components.networks.layers import as_float
from starling.core.params import Params
from starling.core.spaces import Float, Leaf, Space
from starling.core.trees import Tree, items, map_with_path, nest
from starling.maths.normalisation import Moments, merge_moments, moments_of, moments_std, normalise

__all__ = ["ObservationNormaliser", "ReturnScale"]

IMAGE_RANK = 3
ROOT = "observation"  # the scope of an observation that is one array


class ObservationNormaliser(Component):
    """(x − mean) / std of everything observed so far, kept within ±clip, for each vector of numbers in an observation.

    Images, whole numbers, truth values and masks of actions pass as they are.
    """

    space: Space  # of one observation
    clip: float = 10.0
    epsilon: float = 1e-8

    needs: ClassVar[str] = "statistics"

    @property
    def normalised(self) -> dict[str, Leaf]:
        """The leaves of the observation that are normalised, by path."""
        leaves = self.space.items()
        return {path: leaf for path, leaf in leaves if isinstance(leaf, Float) and len(leaf.shape) < IMAGE_RANK}

    @api
    def __call__(self, p: Params, obs: Tree) -> Tree:  # [*, …] -> [*, …]
        wanted = self.normalised

        def one(path: str, x: Any) -> Any:
            if path not in wanted:
                return x
            scope = _at(p, path or ROOT)
            return normalise(as_float(x), _statistics(scope, wanted[path].shape), self.clip, self.epsilon)

        return map_with_path(one, obs)

    def moments(self, obs: Tree, weight: Any = None) -> Tree:
        """The statistics of a batch [*, …], by the scopes of the parameters; ``weight`` [*] tells which rows count."""
        wanted = self.normalised
        return nest(
            {
                path or ROOT: moments_of(as_float(x), len(x.shape) - len(wanted[path].shape), weight)
                for path, x in items(obs)
                if path in wanted
            }
        )

    def merged(self, p: Params, moments: Tree) -> Params:
        paths = [path or ROOT for path in self.normalised]
        both = {path: Params(merge_moments(_at(p, path), _at(moments, path))) for path in paths}
        return Params(nest(both, Params))


class ReturnScale(Component):
    """Rewards divided by the standard deviation of the discounted return so far, kept within ±clip.

    They are not centred: their signs, and so the best policy, stay.
    """

    clip: float = 10.0

    needs: ClassVar[str] = "returns"

    @api
    def __call__(self, p: Params, reward: Any) -> Any:  # [*] -> [*]
        xp = ops(reward)
        return xp.clip(reward / moments_std(_statistics(p["returns"], ())), -self.clip, self.clip)

    def moments(self, returns: Any, weight: Any = None) -> dict[str, Moments]:
        """The statistics of a batch of discounted returns so far [*]."""
        return {"returns": moments_of(returns, len(returns.shape), weight)}

    def merged(self, p: Params, moments: dict[str, Moments]) -> Params:
        return Params(returns=Params(merge_moments(p["returns"], moments["returns"])))


def _at(tree: Any, path: str) -> Any:
    """The scope of an entry of the observation: as deep as the entry itself."""
    for key in path.split("."):
        tree = tree[key]
    return tree


def _statistics(p: Params, shape: tuple[int, ...]) -> Moments:
    shapes = {"count": (), "mean": shape, "m2": shape}
    return {name: p.get(name, shapes[name], initialisers.zeros) for name in shapes}
