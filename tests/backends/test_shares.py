"""Where the rows of a batch lie."""

import numpy as np
import pytest

from starling.backends.shares import batch_axes, check_shares, share_of, weight_of
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


def test_a_batch_with_fewer_rows_than_devices_is_refused_with_the_remedy():
    batch = arrays(obs=(3, 2, 4), last=(2, 4), rate=())
    check_shares(batch, batch_axes(batch, ROLLOUT), ["cuda:0", "cuda:1"])
    with pytest.raises(
        ConfigError,
        match=r"'last' of a batch has 2 rows, too few for the 3 devices cuda:0, cuda:1, cuda:2; name fewer devices, or "
        r"learn from larger batches\.",
    ):
        check_shares(batch, batch_axes(batch, ROLLOUT), ["cuda:0", "cuda:1", "cuda:2"])


@pytest.mark.parametrize(("rows", "shares"), [(6, [2, 2, 2]), (8, [2, 3, 3]), (3, [1, 1, 1])])
def test_shares_are_one_behind_the_other_and_differ_by_a_row_at_most(rows, shares):
    found = [share_of(rows, i, 3) for i in range(3)]
    assert [count for _, count in found] == shares
    assert [start for start, _ in found] == [sum(shares[:i]) for i in range(3)]


def test_a_share_weighs_as_many_rows_as_count():
    rows, mask = np.zeros((3, 4)), np.array([[1.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    assert weight_of([rows, None], [0, None]) == 3.0
    assert weight_of([{"x": rows, "mask": mask}], [{"x": 0, "mask": 1}]) == 3.0, "steps [T, B]"
    assert weight_of([{"x": rows, "mask": mask.T}], [{"x": 0, "mask": 0}]) == 3.0, "rows [B], whatever is inside"
    assert weight_of([{"x": rows, "mask": mask[:, :1]}], [{"x": 0, "mask": 1}]) == 2.0
    assert weight_of([np.float32(2.0)], [None]) == 1.0
