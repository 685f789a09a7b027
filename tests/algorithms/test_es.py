"""The direction that evolution strategies climb in, by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from starling.components.optimisers import SGD
from starling.components.schedules import Constant
from starling.core.trees import leaves
from starling.experience.evaluations import perturbation
from tests.algorithms.tables import arrays, drawn, tabular

SIGMA = 0.25
SIGNS = [1.0, -1.0, 1.0, -1.0]


def climbed(earned):
    """How far a step of size 1 along the estimate moves the parameters, and the two perturbations."""
    es = dataclasses.replace(tabular("es", population=4, sigma=SIGMA), optimiser=SGD(Constant(1.0)))
    params = drawn(es, 0)
    batch = {**arrays({"sign": SIGNS, "earned": earned}), "seed": np.array([7, 7, 8, 8])}
    draws = es.draws(np.random.default_rng(0), batch)
    size = sum(leaf.size for leaf in leaves(params))
    np.testing.assert_array_equal(draws, [perturbation(seed, size) for seed in batch["seed"]])
    after, _ = es.update(es.init(params), batch, draws)
    moved = [new - old for new, old in zip(leaves(after["params"]), leaves(params), strict=True)]
    return np.concatenate([each.ravel() for each in moved]), draws[0], draws[2]


@pytest.mark.parametrize(
    ("earned", "first", "second"),
    [
        # Ranks from the lowest to the highest count −½, −⅙, ⅙ and ½; the opposite of a perturbation counts against it.
        ([5.0, 1.0, 2.0, 3.0], 1 / 2 + 1 / 2, -1 / 6 - 1 / 6),
        ([1.0, 500.0, 3.0, 2.0], -1 / 2 - 1 / 2, 1 / 6 + 1 / 6),
        ([2.0, 2.0, 0.0, 4.0], 0.0, -1 / 2 - 1 / 2),  # equal returns share their ranks
        ([3.0, 3.0, 3.0, 3.0], 0.0, 0.0),
    ],
)
def test_a_step_goes_where_perturbations_earned_more_than_their_opposites(earned, first, second):
    moved, one, other = climbed(earned)
    expected = (first * one + second * other) / (len(earned) * SIGMA)
    np.testing.assert_allclose(moved, expected, rtol=1e-5, atol=1e-6)
