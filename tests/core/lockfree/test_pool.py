"""A pool of slots and its lanes, one at a time."""

from __future__ import annotations

import numpy as np
import pytest

from starling.core.errors import RunError
from starling.core.lockfree.pool import NONE, Pool
from tests.core.lockfree.messages import item, number_of


def pool_of(senders=1, depth=1, loans=1, keeps=False, descriptor=None):
    return Pool("experience", item(0), list(range(senders)), depth, loans, keeps, descriptor)


def slots_of(pool):
    """Every slot, once for each side that may use it."""
    free = [slot for row in pool.stock.tolist() for slot in row if slot != NONE]
    offered = [slot for lane in pool.lanes.values() for slot in lane.waiting() if slot not in free]
    return sorted(free + offered + pool.taking()._spare)


def test_items_come_out_in_their_order_and_no_more_go_in_than_fit():
    lane = pool_of(depth=2).lanes[0]
    assert not lane.filled()
    assert [lane.put(item(i)) for i in (1, 2, 3)] == [True, True, False]
    assert number_of(lane.take(borrow=False)) == 1
    assert lane.put(item(3))
    assert [number_of(lane.take(borrow=False)) for _ in range(2)] == [2, 3]
    assert (lane.filled(), lane.sent, lane.taken) == (0, 3, 3)


def test_both_sides_see_the_same_lane_through_its_descriptor():
    one = pool_of(depth=2)
    other = pool_of(depth=2, descriptor=one.segment.descriptor)
    for i in range(10):
        assert one.lanes[0].put(item(i))
        assert number_of(other.lanes[0].take(borrow=True)) == i


@pytest.mark.parametrize("loans", [1, 2, 5])
@pytest.mark.parametrize(("senders", "depth"), [(1, 1), (1, 3), (3, 1), (3, 2)])
def test_borrowed_items_stay_as_they_are_while_they_are_on_loan(senders, depth, loans):
    pool = pool_of(senders, depth, loans)
    rng = np.random.default_rng(depth + 10 * loans + 100 * senders)
    sent, held = [0] * senders, []
    for _ in range(1_000):
        sender = int(rng.integers(senders))
        lane = pool.lanes[sender]
        if rng.random() < 0.5:
            sent[sender] += lane.put(item(1_000 * sender + sent[sender]))
        elif lane.filled():
            held = [*held, (1_000 * sender + lane.taken, lane.take(borrow=True))][-loans:]
        assert [number_of(each) for _, each in held] == [number for number, _ in held]
    assert min(sent) > 50


def test_requests_that_were_not_answered_are_offered_again():
    lane = pool_of(depth=2, loans=2, keeps=True).lanes[0]
    for i in range(4):
        lane.put(item(i))
        if i:
            lane.take(borrow=False)  # 0, 1, 2; the fourth waits
        if i == 1:
            lane.release()  # the first is answered
    lane.rewind(2)
    assert [number_of(lane.take(borrow=False)) for _ in range(3)] == [1, 2, 3]


def test_a_receiver_that_answers_nothing_stops_its_senders_and_they_go_on_when_it_does():
    """Two lanes of depth 1 and two loans are four slots: the fifth request has to wait, although none is queued."""
    pool = pool_of(senders=2, depth=1, loans=2, keeps=True)
    taken = []
    for i in range(4):
        assert pool.lanes[i % 2].put(item(i))
        taken.append(number_of(pool.lanes[i % 2].take(borrow=False)))
    assert taken == [0, 1, 2, 3]
    assert [pool.lanes[i].put(item(4)) for i in range(2)] == [False, False]
    pool.lanes[1].release()
    assert sum(pool.lanes[i].put(item(4)) for i in range(2)) == 1
    pool.lanes[0].release()
    assert sum(lane.sent for lane in pool.lanes.values()) == 5
    assert pool.lanes[1].put(item(5)) or pool.lanes[0].put(item(5))


def test_a_reader_that_keeps_up_is_served_from_few_slots():
    lane = pool_of(depth=4).lanes[0]
    places = set()
    for i in range(20):
        lane.put(item(i))
        places.add(lane.take(borrow=True)["a"].__array_interface__["data"][0])
    assert len(places) == 2, "the one on loan, and the next"


def test_an_item_of_another_shape_is_refused_and_not_put():
    lane = pool_of(depth=2).lanes[0]
    with pytest.raises(RunError, match="experience: a"):
        lane.put({"a": np.zeros((2, 4), np.float32), "b": np.int64(0)})
    assert not lane.filled()


class Dies(Exception):
    pass


class Mortal:
    """An array that lets its writer die before or after one of its stores."""

    def __init__(self, array, countdown, after):
        self.array, self.countdown, self.after = array, countdown, after

    def __setitem__(self, key, value):
        self.countdown[0] -= 1
        if self.countdown[0] == 0 and not self.after:
            raise Dies
        self.array[key] = value
        if self.countdown[0] == 0:
            raise Dies

    def __getitem__(self, key):
        return self.array[key]

    def __getattr__(self, name):
        return getattr(self.array, name)

    def __len__(self):
        return len(self.array)

    def __contains__(self, value):
        return value in self.array

    def __eq__(self, other):
        return self.array == other

    __hash__ = None


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("store", [1, 2])
@pytest.mark.parametrize("keeps", [False, True])
def test_either_side_may_die_at_any_store_and_no_slot_or_item_is_lost_or_doubled(keeps, store, after):
    """Both sides are killed again and again at their n-th store, and go on with nothing but the shared memory."""
    pool = pool_of(senders=2, depth=2, loans=2, keeps=keeps)
    slots = list(range(6))
    rng = np.random.default_rng(store)
    sent, taken, deaths = [0, 0], [[], []], 0
    for _ in range(600):
        side = pool_of(2, 2, 2, keeps, pool.segment.descriptor)
        sender = int(rng.integers(2))
        lane, dies = side.lanes[sender], rng.random() < 0.3
        countdown = [store if dies else -1]
        side.stock, lane._order = Mortal(side.stock, countdown, after), Mortal(lane._order, countdown, after)
        lane._head, lane._taken = Mortal(lane._head, countdown, after), Mortal(lane._taken, countdown, after)
        try:
            if rng.random() < 0.5:
                lane.put(item(1_000 * sender + lane.sent))
            elif lane.filled():
                number = lane.taken
                found = number_of(lane.take(borrow=bool(rng.integers(2))))
                assert found == 1_000 * sender + number
        except Dies:
            deaths += 1
        sent[sender] = lane.sent
        taken[sender] = list(range(lane.taken))
        whole = pool_of(2, 2, 2, keeps, pool.segment.descriptor)
        assert slots_of(whole) == slots
    assert deaths > 20
    assert min(sent) > 50
    assert min(len(numbers) for numbers in taken) > 50


def test_memory_grows_with_actors_and_not_with_their_square():
    """128 actors with 8 environments each, 16 steps of 84×84×4: one slot each and four on loan are under half a GB."""
    rollout = {"obs": np.broadcast_to(np.uint8(0), (16, 8, 84, 84, 4)), "reward": np.zeros((16, 8), np.float32)}
    message = 16 * 8 * (84 * 84 * 4 + 4)
    size = Pool.size(rollout, senders=128, depth=1, loans=4)
    assert 132 * message <= size <= 132 * message + 100_000
    assert size <= 2e9
    assert Pool.size(rollout, senders=256, depth=1, loans=4) < 2 * size
