import json

import numpy as np
import pytest

from starling.core.random import generator_state, restore_generator, stream


def test_the_same_names_give_the_same_numbers():
    np.testing.assert_array_equal(stream(7, "actor", 3).random(50), stream(7, "actor", 3).random(50))


@pytest.mark.parametrize(
    "other", [(8, "actor", 3), (7, "actor", 4), (7, "learner", 3), (7, "actor"), (7, "actor/3", "")]
)
def test_other_names_or_seeds_give_other_numbers(other):
    assert not np.array_equal(stream(7, "actor", 3).random(50), stream(*other).random(50))


def test_streams_do_not_depend_on_what_was_drawn_before():
    first = stream(0, "a")
    first.random(1000)
    np.testing.assert_array_equal(stream(0, "b").random(5), stream(0, "b").random(5))


def test_streams_of_neighbouring_seeds_are_not_correlated():
    draws = np.stack([stream(seed, "x").standard_normal(2000) for seed in range(20)])
    correlations = np.corrcoef(draws)[np.triu_indices(20, 1)]
    assert np.abs(correlations).max() < 0.1  # standard error 0.022: four and a half of them


@pytest.mark.parametrize("before", [0, 1, 3, 1001])
def test_a_restored_generator_goes_on_where_it_was(before):
    rng = stream(1, "x")
    rng.integers(0, 100, before, dtype=np.uint32)  # half words, which the generator buffers
    state = generator_state(rng)
    expected = [rng.random(9), rng.integers(0, 100, 9, dtype=np.uint32)]
    other = stream(2, "y")
    restore_generator(other, state)
    np.testing.assert_array_equal(other.random(9), expected[0])
    np.testing.assert_array_equal(other.integers(0, 100, 9, dtype=np.uint32), expected[1])


def test_a_state_survives_json_and_later_draws():
    rng = stream(1, "x")
    state = generator_state(rng)
    written = json.loads(json.dumps({k: np.asarray(v).tolist() for k, v in state.items()}))
    expected = rng.random(4)
    typed = {k: np.asarray(v, np.uint64) if k != "position" else v for k, v in written.items()}
    other = stream(9, "z")
    restore_generator(other, typed)
    np.testing.assert_array_equal(other.random(4), expected)
