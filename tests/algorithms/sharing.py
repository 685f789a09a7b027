"""What an algorithm learns on one device, and on several that share each batch.

python -m tests.algorithms.sharing jax [CASE …]      # a JSON line for each case
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from starling.algorithms import ALGORITHMS
from starling.algorithms.gradient import GradientAlgorithm
from starling.backends import get_backend
from starling.components.graph.build import build
from starling.core.trees import items
from tests.algorithms.cases import FITS, Case, assembled, batch_for

__all__ = ["CASES", "COUNTS", "differences", "learned"]

COUNTS = (2, 3)
ROWS: dict[str, dict[str, Any]] = {  # four or eight rows: three devices cannot share them equally
    "a2c": {"envs": 4},
    "impala": {"envs": 4},
    "ppo": {"envs": 4, "minibatch": 8},
    "reinforce": {"episodes": 4},
}


def _case(algo: str, obs: str = "vector", **settings: Any) -> Case:
    return Case(algo, obs, FITS[algo][0], tuple({**ROWS.get(algo, {}), **settings}.items()))


CASES = [
    *(_case(algo) for algo, cls in ALGORITHMS.items() if issubclass(cls, GradientAlgorithm)),
    _case("ppo", "dict", normalise_observations=True, normalise_rewards=True),
    _case("ppo", memory="lstm", minibatch=16),
]


def learned(case: Case, backend: str, devices: tuple[str, ...] = (), updates: int = 3) -> dict[str, np.ndarray]:
    """The state after several updates and what the last of them found, by path."""
    graph = build(assembled(case), get_backend(backend), seed=3, devices=devices)
    update, state = graph.function("update", donate=(0,)), graph.init(graph.initial)
    for seed in range(updates):
        batch, draws = batch_for(case, seed)
        state, found = update(state, batch, draws)
    weights = graph.fetch(state["params"])
    return dict(items({"state": graph.backend.to_numpy(state), "weights": weights, "found": found}))


def differences(case: Case, backend: str) -> dict[int, float]:
    """By the number of devices: how far what several learn is from what one learns, at most."""
    one, found = learned(case, backend), {}
    for count in COUNTS:
        several = learned(case, backend, tuple(f"cpu:{i}" for i in range(count)))
        assert several.keys() == one.keys()
        found[count] = float(np.max([np.abs(np.asarray(several[path]) - np.asarray(one[path])).max() for path in one]))
    return found


if __name__ == "__main__":
    for each in CASES:
        if not sys.argv[2:] or str(each) in sys.argv[2:]:
            print(json.dumps([str(each), differences(each, sys.argv[1])]), flush=True)
