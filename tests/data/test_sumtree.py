import numpy as np
import pytest

from starling.data.tables.sumtree import draw_many, leaf_weight, set_many, set_one, total_weight, tree_levels, tree_size


def make(weights):
    levels, tree = tree_levels(len(weights)), np.zeros(tree_size(len(weights)))
    n = len(weights)
    set_many(tree, levels, np.arange(n), np.asarray(weights, float), n, np.empty(n, np.int64), None)
    return tree, levels


def draw(tree, levels, uniforms):
    n = len(uniforms)
    leaves = np.empty(n, np.int64)
    draw_many(tree, levels, np.asarray(uniforms, float), n, leaves, np.empty(n))
    return leaves.tolist()


def test_draws_fall_where_the_running_sum_says():
    tree, levels = make([1.0, 0.0, 2.0, 1.0])
    assert draw(tree, levels, [0.0, 0.24, 0.25, 0.5, 0.74, 0.75, 0.999]) == [0, 0, 2, 2, 2, 3, 3]


@pytest.mark.parametrize("n", [1, 7, 8, 9, 64, 65, 513, 5000])
def test_every_size_sums_up_and_draws_like_a_search_in_the_cumulated_weights(n):
    rng = np.random.default_rng(n)
    weights = rng.integers(0, 5, n).astype(float)
    weights[rng.integers(n)] = 3.0
    tree, levels = make(weights)
    assert total_weight(tree) == weights.sum()
    uniforms = (np.arange(1000) + 0.5) / 1000
    assert (
        draw(tree, levels, uniforms) == np.searchsorted(np.cumsum(weights), uniforms * weights.sum(), "right").tolist()
    )


def test_one_weight_at_a_time_gives_the_same_tree_as_all_at_once():
    weights = np.random.default_rng(0).random(100)
    together, levels = make(weights)
    single = np.zeros_like(together)
    for i in np.random.default_rng(1).permutation(100):
        set_one(single, levels, i, weights[i], None)
    np.testing.assert_array_equal(single, together)
    assert leaf_weight(single, levels, 42) == weights[42]


def test_a_zero_weight_is_never_drawn_even_where_rounding_bites():
    weights = np.zeros(1000)
    weights[::37] = np.random.default_rng(0).random(28) * 10.0 ** np.random.default_rng(1).integers(-18, 18, 28)
    tree, levels = make(weights)
    uniforms = np.concatenate(
        [np.linspace(0, 1, 10_000, endpoint=False), [np.nextafter(1, 0)], 1 - 10.0 ** -np.arange(3, 16)]
    )
    assert all(weights[leaf] > 0 for leaf in draw(tree, levels, uniforms))
