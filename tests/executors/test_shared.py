"""Edges in shared memory, one at a time."""

from __future__ import annotations

import numpy as np
import pytest

from starling.core.errors import RunError
from starling.executors.shared_edges import Ring


def item(number):
    return {"a": np.full((2, 3), number, np.float32), "b": np.int64(number)}


def number_of(taken):
    assert (taken["a"] == taken["b"]).all()
    return int(taken["b"])


def test_items_come_out_in_their_order_and_no_more_go_in_than_fit():
    ring = Ring("experience", item(0), depth=2, loans=1)
    assert not ring.filled()
    assert [ring.put(item(i)) for i in (1, 2, 3)] == [True, True, False]
    assert number_of(ring.take(borrow=False)) == 1
    assert ring.put(item(3))
    assert [number_of(ring.take(borrow=False)) for _ in range(2)] == [2, 3]
    assert (ring.filled(), ring.sent, ring.taken) == (False, 3, 3)


def test_both_sides_see_the_same_ring_through_its_descriptor():
    one = Ring("experience", item(0), depth=2, loans=1)
    other = Ring("experience", item(0), depth=2, loans=1, descriptor=one.segment.descriptor)
    for i in range(10):
        assert one.put(item(i))
        assert number_of(other.take(borrow=True)) == i


@pytest.mark.parametrize("loans", [1, 2, 5])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_borrowed_items_stay_as_they_are_while_they_are_on_loan(depth, loans):
    ring = Ring("experience", item(0), depth, loans)
    rng = np.random.default_rng(depth + 10 * loans)
    sent, held = 0, []
    for _ in range(500):
        if rng.random() < 0.5:
            sent += ring.put(item(sent))
        elif ring.filled():
            held = [*held, (ring.taken, ring.take(borrow=True))][-loans:]
        assert [number_of(each) for _, each in held] == [number for number, _ in held]
    assert sent > 100


def test_what_was_taken_last_can_be_offered_again():
    ring = Ring("requests", item(0), depth=2, loans=2)
    for i in range(4):
        ring.put(item(i))
        if i:
            ring.take(borrow=False)  # 0, 1, 2; the fourth waits
    assert ring.put(item(4))  # as many as fit come after
    ring.rewind(2)
    assert [number_of(ring.take(borrow=False)) for _ in range(4)] == [1, 2, 3, 4]


def test_a_reader_that_keeps_up_is_served_from_few_slots():
    ring = Ring("experience", item(0), depth=4, loans=1)
    places = set()
    for i in range(20):
        ring.put(item(i))
        places.add(ring.take(borrow=True)["a"].__array_interface__["data"][0])
    assert len(places) == 2, "the one on loan, and the next"


def test_an_item_of_another_shape_is_refused_and_not_put():
    ring = Ring("experience", item(0), depth=2, loans=1)
    with pytest.raises(RunError, match="experience: a"):
        ring.put({"a": np.zeros((2, 4), np.float32), "b": np.int64(0)})
    assert not ring.filled()
