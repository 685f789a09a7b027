import math

import numpy as np
import pytest

from starling.core.errors import ConfigError
from starling.maths import schedules as s
from tests.maths.helpers import allclose, f32, i32

CASES = {
    "constant": (s.constant, (0.3,), {0: 0.3, 50: 0.3}),
    "linear": (s.linear, (1.0, 0.1, 100.0), {0: 1.0, 50: 0.55, 100: 0.1, 1000: 0.1}),
    "linear from 20": (s.linear, (1.0, 0.0, 10.0, 20.0), {0: 1.0, 20: 1.0, 25: 0.5, 30: 0.0, 40: 0.0}),
    "exponential": (s.exponential, (1.0, 0.5, 10.0, 0.2), {0: 1.0, 10: 0.5, 20: 0.25, 1000: 0.2}),
    "rising exponential": (s.exponential, (1.0, 2.0, 10.0, 3.0), {0: 1.0, 10: 2.0, 40: 3.0}),
    "cosine": (s.cosine, (1.0, 0.2, 100.0), {0: 1.0, 25: 0.6 + 0.4 * math.sqrt(0.5), 50: 0.6, 100: 0.2, 300: 0.2}),
    "piecewise": (s.piecewise, ((10, 20), (3.0, 2.0, 1.0)), {0: 3.0, 9: 3.0, 10: 2.0, 19: 2.0, 20: 1.0}),
    "warmup": (s.warmup, (4.0,), {0: 0.25, 1: 0.5, 3: 1.0, 9: 1.0}),
}


@pytest.mark.parametrize("case", CASES)
def test_on_python_numbers_a_python_float_comes_back(case):
    schedule, settings, expected = CASES[case]
    for count, value in expected.items():
        result = schedule(count, *settings)
        assert type(result) is float
        assert result == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_on_arrays_every_backend_gives_the_same(run, case):
    schedule, settings, expected = CASES[case]
    counts = i32(list(expected))
    allclose(run(schedule, counts, *settings), list(expected.values()))
    allclose(run(schedule, counts[1], *settings), list(expected.values())[1])


def test_a_schedule_of_no_length_is_at_its_end_after_one_count():
    assert s.linear(1, 1.0, 0.1, 0.0) == pytest.approx(0.1)


def test_impossible_schedules_are_refused():
    with pytest.raises(ConfigError, match="one value more"):
        s.piecewise(0, (10, 20), (1.0, 2.0))
    with pytest.raises(ConfigError, match="must rise"):
        s.piecewise(0, (20, 10), (1.0, 2.0, 3.0))
    with pytest.raises(ConfigError, match="above 0"):
        s.exponential(0, 0.0, 0.5, 10.0)


def test_importance_weights_by_hand(run):
    # (4·[1/2, 1/4, 1/8])^-1 = [.5, 1, 2]; over the largest
    allclose(run(s.importance_weights, f32([0.5, 0.25, 0.125]), 4.0, 1.0), [0.25, 0.5, 1.0])
    allclose(run(s.importance_weights, f32([0.5, 0.25, 0.125]), 4.0, 0.5), np.sqrt([0.25, 0.5, 1.0]))


def test_without_correction_every_weight_is_one(run, rng):
    allclose(run(s.importance_weights, f32(rng.random(6) + 0.01), 1e6, 0.0), np.ones(6))


def test_tiny_probabilities_of_a_large_table_stay_finite(run):
    weights = run(s.importance_weights, f32([1e-12, 1e-3]), 2e6, 1.0)
    allclose(weights, [1.0, 1e-9], rtol=1e-4)
