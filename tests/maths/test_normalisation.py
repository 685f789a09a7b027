import numpy as np
import pytest

from starling.maths import normalisation as n
from tests.maths.helpers import allclose, check_gradients, f32, rlax


def test_moments_of_a_batch_are_its_mean_and_variance(run, rng):
    x = f32(rng.normal(3.0, 2.0, size=(50, 4)))
    moments = run(n.moments_of, x)
    assert moments["count"] == 50
    allclose(moments["mean"], x.mean(axis=0))
    allclose(moments["m2"] / 50, x.var(axis=0))


def test_moments_over_time_and_batch(run, rng):
    x = f32(rng.normal(size=(5, 6, 4)))
    moments = run(n.moments_of, x, ranks=2)
    assert moments["count"] == 30
    allclose(moments["mean"], x.mean(axis=(0, 1)))


def test_batches_merged_in_any_split_give_the_moments_of_the_whole(run, rng):
    x = f32(rng.normal(100.0, 2.0, size=(90, 3)))  # the mean far from zero: naive sums of squares lose digits here
    moments = n.empty_moments((3,))
    for part in np.split(x, [1, 30, 55]):
        moments = run(n.update_moments, moments, part)
    assert moments["count"] == 90
    allclose(moments["mean"], x.mean(axis=0, dtype=np.float64))
    allclose(run(n.moments_std, moments), x.std(axis=0, dtype=np.float64), rtol=1e-4)


def test_merging_nothing_changes_nothing(run, rng):
    moments = run(n.moments_of, f32(rng.normal(size=(9, 2))))
    for merged in (
        run(n.merge_moments, moments, n.empty_moments((2,))),
        run(n.merge_moments, n.empty_moments((2,)), moments),
    ):
        for key, value in moments.items():
            allclose(merged[key], value)


def test_two_empty_moments_merge_to_empty_ones(run):
    merged = run(n.merge_moments, n.empty_moments((2,)), n.empty_moments((2,)))
    assert merged["count"] == 0
    allclose(run(n.moments_std, merged), [1.0, 1.0])


def test_past_the_limit_old_rows_fade_and_the_variance_stays(run, rng):
    def merge(moments, x):
        return n.merge_moments(moments, n.moments_of(x), limit=100.0)

    moments = n.empty_moments()
    for _ in range(40):
        moments = run(merge, moments, f32(rng.normal(size=50)))
    assert moments["count"] == 100
    assert 0.7 < run(n.moments_std, moments) < 1.3


def test_normalise_centres_scales_and_clips(run):
    moments = {"count": f32(4.0), "mean": f32([1.0]), "m2": f32([16.0])}  # std 2
    allclose(run(n.normalise, f32([[3.0], [1.0], [1e6]]), moments), [[1.0], [0.0], [10.0]])


def test_before_anything_was_seen_normalise_leaves_values_alone(run):
    allclose(run(n.normalise, f32([[0.5, -2.0]]), n.empty_moments((2,))), [[0.5, -2.0]])


def test_standardised_values_have_mean_zero_and_deviation_one(run, rng):
    x = run(n.standardise, f32(rng.normal(5.0, 3.0, size=(8, 16))))
    allclose(x.mean(), 0.0, atol=1e-5)
    allclose(x.std(), 1.0, rtol=1e-4)


def test_a_constant_batch_standardises_to_zero(run):
    allclose(run(n.standardise, f32([2.0, 2.0, 2.0])), [0.0, 0.0, 0.0])


def test_only_rows_with_weight_count(run):
    x = f32([[[1, 10], [9e5, 9e5]], [[3, 10], [5, 40]]])  # [T, B, 2]: means 3 and 20 of the three that count
    moments = run(n.moments_of, x, ranks=2, weight=f32([[1, 0], [1, 1]]))
    assert moments["count"] == 3
    allclose(moments["mean"], [3, 20])
    allclose(moments["m2"], [8, 600])


def test_weights_of_one_are_no_weights(run, rng):
    x = f32(rng.normal(size=(5, 6, 4)))
    weighted, alone = run(n.moments_of, x, 2, np.ones((5, 6), np.float32)), run(n.moments_of, x, 2)
    for name in ("count", "mean", "m2"):
        allclose(weighted[name], alone[name], rtol=1e-5)


def test_where_no_row_counts_the_moments_are_those_of_nothing(run):
    moments = run(n.moments_of, f32([[7.0], [8.0]]), 1, f32([0, 0]))
    for name, value in n.empty_moments((1,)).items():
        allclose(moments[name], value)


def test_sums_of_moments_by_hand():
    moments = {"returns": {"count": f32(2), "mean": f32([3, 5]), "m2": f32([2, 8])}}  # of 2, 4 and of 3, 7
    sums = n.sums_of_moments(moments)
    assert sums["returns"]["count"] == 2
    assert sums["returns"]["mean"].tolist() == [6, 10]
    assert sums["returns"]["m2"].tolist() == [20, 58]
    assert all(leaf.dtype == np.float64 for leaf in sums["returns"].values())


def test_moments_come_back_from_their_sums(rng):
    moments = {"a": {"b": n.moments_of(f32(rng.normal(100.0, 2.0, size=(90, 3))))}, "c": n.empty_moments((2,))}
    back = n.moments_from_sums(n.sums_of_moments(moments))
    for found, given in ((back["a"]["b"], moments["a"]["b"]), (back["c"], moments["c"])):
        for name, value in given.items():
            assert found[name].dtype == np.float32
            allclose(found[name], value, rtol=1e-5)


def test_sums_of_two_batches_add_up_to_those_of_both(rng):
    x = f32(rng.normal(100.0, 2.0, size=(90, 3)))  # the mean far from zero, as above
    one, other = (n.sums_of_moments(n.moments_of(part)) for part in (x[:20], x[20:]))
    joint = n.moments_from_sums({name: one[name] + other[name] for name in one})
    assert joint["count"] == 90
    allclose(joint["mean"], x.mean(axis=0, dtype=np.float64))
    allclose(joint["m2"] / 90, x.var(axis=0, dtype=np.float64), rtol=1e-5)


def test_a_sum_never_gives_a_variance_below_zero():
    constant = n.moments_of(f32(np.full((3, 1), 12345.678)))
    assert n.moments_from_sums(n.sums_of_moments(constant))["m2"] >= 0


def test_rescaling_matches_rlax_and_the_formula(run):
    x = f32(np.linspace(-300, 300, 101))
    allclose(run(n.rescale_value, x), rlax.signed_hyperbolic(x, eps=1e-3), atol=1e-5)
    allclose(run(n.rescale_value, x), np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + 1e-3 * x, atol=1e-5)


@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 1e-2])
def test_unscaling_undoes_rescaling_to_float32_precision_at_every_size(run, epsilon):
    x = f32(np.concatenate([-np.logspace(-6, 6, 49), [0.0], np.logspace(-6, 6, 49)]))
    back = run(lambda x: n.unscale_value(n.rescale_value(x, epsilon), epsilon), x)
    allclose(back, x, rtol=3e-6, atol=0.0)


def test_unscaling_matches_the_textbook_inverse_in_double_precision(run):
    x, epsilon = np.linspace(-50, 50, 101), 1e-3
    root = (np.sqrt(1 + 4 * epsilon * (np.abs(x) + 1 + epsilon)) - 1) / (2 * epsilon)
    allclose(run(n.unscale_value, f32(x), epsilon), np.sign(x) * (root**2 - 1), rtol=1e-5, atol=1e-5)


def test_the_slopes_agree_and_are_right_at_zero():
    x = f32([-3.0, -0.1, 0.0, 0.1, 3.0])
    slopes = check_gradients(lambda x: n.rescale_value(x), x)[0] * x.size
    allclose(slopes[2], 0.5 + 1e-3, rtol=1e-3)
    inverse = check_gradients(lambda x: n.unscale_value(x), x)[0] * x.size
    allclose(inverse[2], 1 / (0.5 + 1e-3), rtol=1e-3)
    check_gradients(lambda x: n.standardise(x) ** 3, x)
