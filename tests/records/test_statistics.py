"""Interquartile means and bootstrap intervals, against brute force and SciPy."""

import itertools

import numpy as np
import pytest
from scipy.stats import trim_mean

from starling.core.errors import DataError
from starling.records.statistics import bootstrap_interval, interquartile_mean, summarise


def test_the_interquartile_mean_by_hand():
    assert interquartile_mean([100, 1, 3, 2, -50, 4, 5, 0]) == (1 + 2 + 3 + 4) / 4


@pytest.mark.parametrize("count", range(1, 14))
def test_the_interquartile_mean_is_scipys_trimmed_mean(count):
    scores = np.random.default_rng(count).normal(size=(count, 3))
    assert interquartile_mean(scores) == pytest.approx(trim_mean(scores, 0.25, axis=None))
    np.testing.assert_allclose(interquartile_mean(scores, axis=0), trim_mean(scores, 0.25, axis=0))
    np.testing.assert_allclose(interquartile_mean(scores, axis=1), trim_mean(scores, 0.25, axis=1))


def test_the_interval_of_few_runs_is_that_of_all_resamples():
    scores = [1.0, 2.0, 4.0, 8.0, 16.0]
    every = [interquartile_mean(drawn) for drawn in itertools.product(scores, repeat=5)]
    low, high = bootstrap_interval(scores, level=0.8, repetitions=40_000)
    np.testing.assert_allclose([low, high], np.quantile(every, [0.1, 0.9]), atol=0.35)


def test_each_task_is_resampled_apart():
    """Two tasks of different scale: drawing across them would mix 0 and 100 in unequal shares."""
    scores = np.array([[0.0, 100.0]] * 6)

    def mean(samples):
        return samples.mean(-1)

    assert bootstrap_interval(scores, mean, repetitions=200) == (50.0, 50.0)


def test_tasks_are_drawn_independently_of_each_other():
    """Runs that balance out across two tasks: drawn jointly, the mean of each resample would be 5.

    Drawn apart, the four draws are fair coins of 0 and 10, so the mean is 0 or 2.5 with probability 5/16.
    """
    scores = np.array([[0.0, 10.0], [10.0, 0.0]])
    low, high = bootstrap_interval(scores, lambda samples: samples.mean(-1), level=0.6, repetitions=5_000)
    assert (low, high) == (2.5, 7.5)  # 1/16 < 0.2 < 5/16


def test_the_interval_holds_the_truth_about_as_often_as_promised():
    rng = np.random.default_rng(0)
    held = 0
    for trial in range(200):
        low, high = bootstrap_interval(rng.normal(size=20), repetitions=300, seed=trial)
        held += low <= 0 <= high
    assert 0.86 < held / 200 <= 1


def test_the_same_seed_gives_the_same_interval():
    scores = np.random.default_rng(0).normal(size=10)
    assert bootstrap_interval(scores, seed=3) == bootstrap_interval(scores, seed=3)
    assert bootstrap_interval(scores, seed=3) != bootstrap_interval(scores, seed=4)


def test_a_summary_by_hand():
    summary = summarise([1.0, 2.0, 3.0, 10.0])
    assert (summary.runs, summary.mean, summary.median, summary.iqm) == (4, 4.0, 2.5, 2.5)
    assert summary.std == pytest.approx(np.sqrt(50 / 3))
    assert (summary.minimum, summary.maximum) == (1.0, 10.0)
    assert 1 <= summary.low <= 2.5 <= summary.high <= 10


def test_a_single_run_has_an_interval_without_width():
    summary = summarise([7.0])
    assert (summary.runs, summary.std, summary.iqm, summary.low, summary.high) == (1, 0.0, 7.0, 7.0, 7.0)


@pytest.mark.parametrize("scores", [[], [1.0, np.nan], [np.inf], np.zeros((2, 0)), np.zeros((2, 2, 2)), 5.0])
def test_scores_that_mean_nothing_are_refused(scores):
    with pytest.raises(DataError, match="finite numbers"):
        summarise(scores)


@pytest.mark.parametrize("level", [0, 1, 95])
def test_a_level_that_is_no_share_is_refused(level):
    with pytest.raises(DataError, match=f"level={level}"):
        bootstrap_interval([1.0, 2.0], level=level)
