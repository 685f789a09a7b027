import threading
import time

import numpy as np
import pytest

from starling.core.errors import CheckpointError, ConfigError, DataError, UnknownNameError
from starling.core.spaces import Dict, Float, Int, Tuple
from starling.core.trees import items, nest
from starling.data import MinSize, Queue, RateLimitTimeout, Table, TableClosedError, prioritized

from .helpers import POINT, points


def drawn(table, n=1, **kwargs):
    return table.sample(n, **kwargs).data["n"].tolist()


def contents(table):
    state = table.state()
    return sorted(state["columns"]["n"][state["index"]["keys"][: state["counters"]["extent"]] >= 0].tolist())


def test_a_drawn_item_has_all_its_leaves_from_one_insertion():
    table = Table(POINT, 100)
    table.insert(points(*range(50)))
    sample = table.sample(200)
    np.testing.assert_array_equal(sample.data["x"], points(*sample.data["n"])["x"])
    assert set(sample.data["n"].tolist()) <= set(range(50))
    np.testing.assert_allclose(sample.probabilities, 1 / 50)
    np.testing.assert_array_equal(sample.weights, 1)


def test_nested_signatures_with_tuples_and_large_leaves_come_back_as_they_went_in():
    signature = Dict(a=Tuple(Float((3,)), Int((), 0, 9, "uint8")), image=Int((40, 40), 0, 256, "uint8"))
    rng = np.random.default_rng(0)
    items = signature.ranked(batch=True).sample(rng, (10,))
    table = Table(signature, 10)
    keys = table.insert(items)
    sample = table.sample(64)
    rows = [keys.tolist().index(k) for k in sample.keys]
    assert isinstance(sample.data["a"], tuple)
    np.testing.assert_array_equal(sample.data["a"][0], items["a"][0][rows])
    np.testing.assert_array_equal(sample.data["a"][1], items["a"][1][rows])
    np.testing.assert_array_equal(sample.data["image"], items["image"][rows])


@pytest.mark.parametrize(
    ("remover", "kept"),
    [("fifo", [2, 3, 4, 5]), ("lifo", [0, 1, 2, 5]), ("max_heap", [0, 1, 3, 5]), ("min_heap", [1, 2, 4, 5])],
)
def test_a_full_table_makes_room_by_its_remover(remover, kept):
    # Priorities 1 3 9 0 7 2: the heap removers look at them when items 4 and 5 arrive.
    table = Table(POINT, 4, sampler="fifo", remover=remover)
    for number, priority in enumerate([1.0, 3.0, 9.0, 0.0, 7.0, 2.0]):
        table.insert(points(number), [priority])
    assert contents(table) == kept


@pytest.mark.parametrize(("sampler", "first"), [("fifo", 0), ("lifo", 3), ("max_heap", 2), ("min_heap", 1)])
def test_each_deterministic_sampler_draws_its_item(sampler, first):
    table = Table(POINT, 4, sampler=sampler)
    table.insert(points(0, 1, 2, 3), [2.0, 1.0, 5.0, 3.0])
    sample = table.sample(2)
    assert sample.data["n"].tolist() == [first, first]
    assert sample.probabilities.tolist() == [1.0, 1.0]


def test_an_updated_priority_moves_an_item_in_a_heap():
    table = Table(POINT, 4, sampler="max_heap")
    keys = table.insert(points(0, 1, 2), [1.0, 2.0, 3.0])
    table.update_priorities(keys[:1], [9.0])
    assert drawn(table) == [0]
    table.update_priorities(keys[:1], [0.5])
    assert drawn(table) == [2]


def test_prioritized_draws_report_their_chances_and_weights():
    table = Table(POINT, 4, sampler=prioritized(0.5, epsilon=0), beta=0.5)
    table.insert(points(0, 1), [1.0, 9.0])  # p^α = 1, 3: chances 1/4 and 3/4
    sample = table.sample(4)
    assert sample.data["n"].tolist() == [0, 1, 1, 1]  # one draw in each quarter of the total
    np.testing.assert_allclose(sample.probabilities, [0.25, 0.75, 0.75, 0.75])
    np.testing.assert_allclose(sample.weights, [1, 3**-0.5, 3**-0.5, 3**-0.5], rtol=1e-6)


@pytest.mark.parametrize("inserted", ["one by one", "together", "later"])
@pytest.mark.parametrize("remover", ["fifo", "uniform"])
def test_an_item_of_priority_zero_is_drawn_with_the_weight_of_epsilon(inserted, remover):
    # ε = 1/4, α = 1/2: weights (0 + 1/4)^½ = 1/2 and (2 + 1/4)^½ = 3/2, chances 1/4 and 3/4.
    table = Table(POINT, 4, sampler=prioritized(0.5, epsilon=0.25), remover=remover)
    if inserted == "one by one":
        table.insert(points(0), [0.0])
        table.insert(points(1), [2.0])
    elif inserted == "together":
        table.insert(points(0, 1), [0.0, 2.0])
    else:
        table.update_priorities(table.insert(points(0, 1)), [0.0, 2.0])
    sample = table.sample(4)
    assert sorted(sample.data["n"].tolist()) == [0, 1, 1, 1]
    np.testing.assert_allclose(sorted(sample.probabilities), [0.25, 0.75, 0.75, 0.75])


def test_epsilon_is_a_millionth_unless_said_otherwise():
    table = Table(POINT, 4, sampler=prioritized(1.0))
    table.insert(points(0, 1), [0.0, 1.0])
    sample = table.sample(2)
    assert sample.data["n"].tolist() == [1, 1]  # a millionth is seldom drawn, but its chance is not zero
    np.testing.assert_allclose(sample.probabilities, (1 + 1e-6) / (1 + 2e-6), rtol=1e-12)


def test_a_caller_gives_beta_at_every_draw():
    table = Table(POINT, 4, sampler=prioritized(1.0, epsilon=0))
    table.insert(points(0, 1), [1.0, 4.0])  # chances 1/5 and 4/5: the second is four times as likely
    for beta, weight in ((0.0, 1.0), (0.5, 0.5), (1.0, 0.25)):  # 4^−β
        sample = table.sample(5, beta=beta)
        np.testing.assert_allclose(sample.weights, np.where(sample.data["n"] == 0, 1.0, weight))
    with pytest.raises(ConfigError, match=r"beta=1\.5"):
        table.sample(5, beta=1.5)
    with pytest.raises(ConfigError, match="beta=-1"):
        Table(POINT, 4, beta=-1)


def test_items_without_priority_get_the_largest_seen():
    table = Table(POINT, 4, sampler="max_heap")
    keys = table.insert(points(0), [0.1])
    table.update_priorities(keys, [7.0])
    table.insert(points(1))
    state = table.state()
    assert state["index"]["priorities"][:2].tolist() == [7.0, 7.0]


@pytest.mark.parametrize("epsilon", [0, 1e-6])
def test_where_all_priorities_are_zero_draws_are_uniform(epsilon):
    table = Table(POINT, 8, sampler=prioritized(1.0, epsilon))
    table.insert(points(0, 1, 2, 3), np.zeros(4))
    assert set(drawn(table, 64)) == {0, 1, 2, 3}


def test_an_item_leaves_after_its_allowed_draws():
    table = Table(POINT, 4, sampler="fifo", max_times_sampled=2)
    table.insert(points(0, 1, 2))
    assert drawn(table, 3) == [0, 0, 1]
    assert len(table) == 2
    assert drawn(table, 3) == [1, 2, 2]
    assert len(table) == 0
    with pytest.raises(RateLimitTimeout, match="the table is empty"):
        table.sample(1, timeout=0)


def test_more_draws_than_are_left_have_to_wait():
    table = Table(POINT, 4, sampler="uniform", max_times_sampled=1)
    table.insert(points(0, 1))
    with pytest.raises(RateLimitTimeout, match="2 draws left, 3 wanted"):
        table.sample(3, timeout=0)
    assert sorted(drawn(table, 2)) == [0, 1]


def test_keys_of_removed_items_are_ignored_and_counted():
    table = Table(POINT, 2, sampler=prioritized(1.0, epsilon=0))
    old = table.insert(points(0, 1), [1.0, 1.0])
    new = table.insert(points(2, 3), [1.0, 1.0])
    assert table.update_priorities(np.concatenate([old, new]), [5.0, 5.0, 0.0, 2.0]) == 2
    assert table.stats()["ignored_updates"] == 2
    assert set(drawn(table, 32)) == {3}


def test_removed_items_are_gone_and_their_places_are_used_again():
    table = Table(POINT, 3)
    keys = table.insert(points(0, 1, 2))
    assert table.remove(keys[1:2]) == 1
    assert table.remove(keys[1:2]) == 0
    assert contents(table) == [0, 2]
    table.insert(points(3))
    assert contents(table) == [0, 2, 3]
    table.insert(points(4))  # the oldest of 0, 2, 3 goes
    assert contents(table) == [2, 3, 4]


def test_a_batch_that_crosses_the_end_of_the_circle_is_stored_whole():
    table = Table(POINT, 5, sampler=prioritized(1.0))
    table.insert(points(0, 1, 2))
    keys = table.insert(points(3, 4, 5, 6), [1.0, 2.0, 3.0, 4.0])
    assert contents(table) == [2, 3, 4, 5, 6]
    assert len(set(keys.tolist())) == 4
    assert table.stats()["evicted"] == 2
    table.update_priorities(keys[:3], np.zeros(3))
    table.update_priorities(keys[3:], [100.0])
    assert drawn(table, 50).count(6) >= 49


def test_draws_go_into_the_callers_buffers():
    table = Table(POINT, 8)
    table.insert(points(*range(8)))
    out = table.buffers(4)
    x = out.data["x"]
    assert table.sample(4, out=out) is out
    assert out.data["x"] is x
    np.testing.assert_array_equal(x, points(*out.data["n"])["x"])
    with pytest.raises(DataError, match="room for 4 items"):
        table.sample(5, out=out)


@pytest.mark.parametrize("max_times", [0, 3])
@pytest.mark.parametrize("sampler", ["uniform", "prioritized", "fifo", "max_heap"])
def test_a_restored_table_continues_exactly(sampler, max_times):
    def make(seed):
        return Table(POINT, 20, sampler=sampler, remover="uniform", max_times_sampled=max_times, seed=seed)

    rng = np.random.default_rng(0)
    table, other = make(1), make(2)
    for i in range(30):
        table.insert(points(i), [rng.random()])
    table.sample(5)
    other.restore(table.state())
    for i in range(10):
        a, b = table.sample(3), other.sample(3)
        assert a.keys.tolist() == b.keys.tolist()
        assert a.data["n"].tolist() == b.data["n"].tolist()
        for t in (table, other):
            t.insert(points(100 + i, 200 + i))
            t.update_priorities(a.keys, a.data["n"] / 7.0)
    assert table.stats() == other.stats()


def test_a_state_may_be_flattened_and_nested_again_on_its_way():
    signature = Dict(obs=Dict(a=Float((2,)), b=Int(())), reward=Float(()))
    table, other = Table(signature, 4, sampler="fifo"), Table(signature, 4, sampler="fifo")
    table.insert(signature.ranked(batch=True).sample(np.random.default_rng(0), (3,)))
    flat = {path: np.asarray(leaf) for path, leaf in items(table.state())}
    other.restore(nest(flat))
    np.testing.assert_array_equal(table.sample(1).data["obs"]["a"], other.sample(1).data["obs"]["a"])


def test_a_state_of_another_table_is_refused_and_changes_nothing():
    table = Table(POINT, 4)
    table.insert(points(1))
    with pytest.raises(CheckpointError, match="'capacity' = 8 arrived, 4 was expected"):
        table.restore(Table(POINT, 8).state())
    with pytest.raises(CheckpointError, match="leaves"):
        table.restore(Table(Dict(y=Float(())), 4).state())
    with pytest.raises(CheckpointError, match="'uniform'"):
        table.restore(Table(POINT, 4, sampler="prioritized").state())
    assert contents(table) == [1]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ({"n": np.zeros(1, np.int64)}, "keys"),
        ({**points(1), "z": np.zeros(1)}, "keys"),
        ({"n": np.zeros(1, np.int32), "x": np.zeros((1, 2), np.float32)}, r"'n'.*int32\[1\].*int64"),
        ({"n": np.zeros(1, np.int64), "x": np.zeros((1, 3), np.float32)}, r"'x'.*\[1, 3\].*\[1, 2\]"),
        ({"n": np.zeros(2, np.int64), "x": np.zeros((1, 2), np.float32)}, r"'x'"),
        ({"n": np.int64(3), "x": np.zeros(2, np.float32)}, "batch"),
        (points(*range(5)), "5 items at once"),
        ([1, 2], "a dict was expected"),
    ],
)
def test_items_that_do_not_fit_are_refused_and_change_nothing(items, message):
    table = Table(POINT, 4)
    table.insert(points(7))
    with pytest.raises(DataError, match=message):
        table.insert(items)
    assert contents(table) == [7]


@pytest.mark.parametrize("bad", [np.nan, -1.0, np.inf, 1e300])
def test_bad_priorities_are_refused_and_change_nothing(bad):
    table = Table(POINT, 4, sampler="prioritized")
    keys = table.insert(points(7), [2.0])
    with pytest.raises(DataError, match="priorities lie between 0"):
        table.insert(points(8), [bad])
    with pytest.raises(DataError, match="number 1 of 2"):
        table.update_priorities(np.concatenate([keys, keys]), [1.0, bad])
    with pytest.raises(DataError, match="shape"):
        table.update_priorities(keys, [1.0, 2.0])
    with pytest.raises(DataError, match="int64"):
        table.update_priorities(keys.astype(np.float64), [1.0])
    assert contents(table) == [7]
    assert table.state()["index"]["priorities"][0] == 2.0


def test_values_outside_their_bounds_are_refused_on_request():
    table = Table(Dict(a=Int((), high=3)), 4, check_values=True)
    with pytest.raises(DataError, match="values 3 … 3 arrived"):
        table.insert({"a": np.array([3], np.int32)})


def test_impossible_tables_are_refused():
    with pytest.raises(ConfigError, match="capacity=0"):
        Table(POINT, 0)
    with pytest.raises(ConfigError, match="no leaves"):
        Table(Dict(), 1)
    with pytest.raises(ConfigError, match="max_times_sampled=-1"):
        Table(POINT, 1, max_times_sampled=-1)
    with pytest.raises(ConfigError, match="epsilon=-1"):
        prioritized(0.6, -1)
    with pytest.raises(UnknownNameError, match="'uniform'"):
        Table(POINT, 1, sampler="unifrom")
    with pytest.raises(DataError, match="batch_size=0"):
        Table(POINT, 1).sample(0)


def test_a_table_too_large_for_memory_is_refused_with_the_numbers():
    with pytest.raises(ConfigError, match=r"needs 2\.83 TB \(image 2\.82 TB"):
        Table(Dict(image=Int((84, 84, 4), 0, 256, "uint8")), 100_000_000)


def test_a_table_can_live_in_files(tmp_path):
    table = Table(Dict(image=Int((40, 40), 0, 256, "uint8"), n=Int(())), 8, directory=tmp_path / "spill")
    images = np.random.default_rng(0).integers(0, 256, (8, 40, 40), np.uint8)
    table.insert({"image": images, "n": np.arange(8, dtype=np.int32)})
    sample = table.sample(16)
    np.testing.assert_array_equal(sample.data["image"], images[sample.data["n"]])
    assert sum(f.stat().st_size for f in (tmp_path / "spill").iterdir()) >= images.nbytes


def test_files_too_large_for_the_disk_are_refused_with_the_numbers(tmp_path):
    with pytest.raises(ConfigError, match=r"needs 100 TB.* is free on its disk"):
        Table(Dict(image=Int((10_000, 10_000), 0, 256, "uint8")), 1_000_000, directory=tmp_path)


def test_a_waiting_sampler_is_served_by_an_insert_from_another_thread():
    table = Table(POINT, 4, limiter=MinSize(2))
    table.insert(points(0))
    got = []
    thread = threading.Thread(target=lambda: got.append(table.sample(1, timeout=10).keys.size))
    thread.start()
    while not table.why_waiting():
        time.sleep(0.001)
    assert table.why_waiting() == ["1 × sample waits: size 1 < 2"]
    assert not table.can_sample()
    table.insert(points(1))
    thread.join(10)
    assert got == [1]
    assert table.stats()["blocked_samples"] == 1


def test_closing_releases_waiting_callers_with_a_typed_error():
    table = Table(POINT, 1, sampler="fifo", max_times_sampled=1, limiter=Queue())
    table.insert(points(0))
    caught = []

    def insert():
        try:
            table.insert(points(1))
        except TableClosedError as error:
            caught.append(str(error))

    thread = threading.Thread(target=insert)
    thread.start()
    while not table.why_waiting():
        time.sleep(0.001)
    table.close()
    thread.join(10)
    assert caught == ["the table 'table' is closed; nothing more goes in or out."]
    with pytest.raises(TableClosedError):
        table.sample(1)
