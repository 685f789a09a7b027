"""Where the rows of a batch lie."""

import numpy as np
import pytest

from starling.backends.shares import batch_axes, check_shares
from starling.core.errors import ConfigError
from starling.core.spaces import Dict, Float, Tuple

ROLLOUT = Dict(obs=Float((4,)).ranked(time=True, batch=True), last=Float((4,)).ranked(batch=True), rate=Float())


def arrays(**shapes):
    return {name: np.zeros(shape) for name, shape in shapes.items()}


def test_the_space_says_which_axis_is_the_batch():
    batch = arrays(obs=(3, 8, 4), last=(8, 4), rate=())
    assert batch_axes(batch, ROLLOUT) == {"obs": 1, "last": 0, "rate": None}


def test_stacked_batches_have_their_batch_axis_one_further():
    batch = arrays(obs=(5, 3, 8, 4), last=(5, 8, 4), rate=(5,))
    assert batch_axes(batch, ROLLOUT) == {"obs": 2, "last": 1, "rate": None}


def test_what_no_space_is_known_of_has_no_batch_axis():
    assert batch_axes({"more": {"x": np.zeros(8)}, **arrays(obs=(3, 8, 4))}, ROLLOUT) == {"more": {"x": None}, "obs": 1}
    assert batch_axes((np.zeros(8), None), None) == (None, None)
    assert batch_axes((np.zeros((8, 2)), np.zeros(2)), Tuple(Float((2,)).ranked(batch=True), Float((2,)))) == (0, None)


def test_rows_that_cannot_be_shared_equally_are_named_with_what_would_do():
    batch = arrays(obs=(3, 9, 4), last=(9, 4), rate=())
    check_shares(batch, batch_axes(batch, ROLLOUT), ["cuda:0", "cuda:1", "cuda:2"])
    with pytest.raises(
        ConfigError,
        match=r"'last' of a batch has 9 rows, which the 2 devices cuda:0, cuda:1 cannot share equally; "
        r"use a multiple of 2, such as 10\.",
    ):
        check_shares(batch, batch_axes(batch, ROLLOUT), ["cuda:0", "cuda:1"])
