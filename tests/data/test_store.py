"""An item that several tables hold is stored once, and leaves with the last of them."""

import tempfile

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from starling.core.errors import ConfigError, DataError
from starling.core.spaces import Dict, Float, Int
from starling.data import (
    Checkpointer,
    Dataset,
    DatasetWriter,
    FramePool,
    NStepAdder,
    RateLimitTimeout,
    Sampler,
    Store,
    Table,
    TableServer,
    Writer,
    ask_server,
    queue,
    transition_signature,
)

from .helpers import POINT, points
from .test_frames import Stacks, images

MIXED = Dict(image=Int((9, 7), 0, 256, "uint8"), n=Int((), 0, 2**40, "int64"), flag=Int((), 0, 2, "uint8"))


def mixed(*numbers):
    """Items with a large leaf, a wide and a narrow one, all of which follow from the number."""
    n = np.asarray(numbers, np.int64)
    image = (n[:, None, None] + np.arange(63).reshape(9, 7)).astype(np.uint8)
    return {"image": image, "n": n, "flag": (n % 2).astype(np.uint8)}


def pair(rows=20, signature=POINT, **options):
    store = Store(signature, rows)
    old = Table(signature, 8, sampler="fifo", store=store, name="old", **options)
    high = Table(signature, 4, sampler="max_heap", remover="min_heap", store=store, name="high", **options)
    return store, old, high


def contents(table):
    """The numbers of the present items, read through the store."""
    slots = np.flatnonzero(table.index.keys >= 0)
    rows = table.contents.where(slots)
    return sorted(table.columns.arrays[table.columns.paths.index("n")][rows].tolist())


def test_an_item_in_two_tables_is_stored_once():
    store, old, high = pair()
    items = points(*range(5))
    old.insert(items)
    assert store.in_use == 5
    high.insert(points(1, 3), [2.0, 7.0])
    assert store.in_use == 5
    assert high.sample(2).data["n"].tolist() == [3, 3]
    np.testing.assert_array_equal(old.sample(1).data["x"], points(0)["x"])


def test_an_item_is_freed_when_the_last_table_lets_go():
    store, old, high = pair()
    first = old.insert(points(1, 2, 3))
    second = high.insert(points(2, 3, 4))
    assert store.in_use == 4
    old.remove(first)
    assert store.in_use == 3
    assert high.sample(1).data["n"].tolist() == [2]
    high.remove(second[:2])
    assert store.in_use == 1
    high.remove(second)
    assert store.in_use == 0


def test_full_tables_and_drawn_out_items_let_go():
    store = Store(POINT, 20)
    once = queue(POINT, 6, store=store)
    ring = Table(POINT, 3, store=store)
    for i in range(6):
        once.insert(points(i))
        ring.insert(points(i))
    assert store.in_use == 6
    assert contents(ring) == [3, 4, 5]
    assert once.sample(4).data["n"].tolist() == [0, 1, 2, 3]
    assert store.in_use == 3
    once.sample(2)
    assert store.in_use == 3
    ring.insert(points(9, 9, 9))  # equal items share a row as well
    assert store.in_use == 1


def test_a_full_store_makes_its_tables_give_up_items():
    store, old, high = pair(rows=6)
    for i in range(30):
        old.insert(points(i))
        high.insert(points(i), [float(i)])
        assert store.in_use <= 6
    assert contents(high)[-1] == 29
    assert contents(old)[-1] == 29


def test_large_and_small_leaves_come_back_as_they_went_in():
    _, old, high = pair(signature=MIXED)
    old.insert(mixed(*range(8)))
    high.insert(mixed(5, 6))
    for table in (old, high):
        sample = table.sample(16)
        expected = mixed(*sample.data["n"])
        for name in MIXED.spaces:
            np.testing.assert_array_equal(sample.data[name], expected[name])


def test_an_insert_that_does_not_go_through_leaves_nothing_behind():
    store = Store(POINT, 20)
    table = queue(POINT, 2, store=store)
    table.insert(points(0, 1))
    with pytest.raises(RateLimitTimeout):
        table.insert(points(2), timeout=0)
    with pytest.raises(DataError, match="priorities lie"):
        table.insert(points(3), [-1.0])
    assert store.in_use == 2


def test_a_refused_insert_into_a_full_store_makes_no_room():
    store = Store(POINT, 4)
    table = Table(POINT, 4, store=store)
    table.insert(points(0, 1, 2, 3))
    with pytest.raises(DataError, match="priorities lie"):
        table.insert(points(4, 5), [1.0, np.nan])
    assert contents(table) == [0, 1, 2, 3]


def test_stores_that_do_not_fit_are_refused(tmp_path):
    store = Store(POINT, 10)
    with pytest.raises(ConfigError, match="the store holds"):
        Table(MIXED, 5, store=store)
    with pytest.raises(ConfigError, match="belong to the store"):
        Table(POINT, 5, store=store, directory=tmp_path)
    with pytest.raises(ConfigError, match="items=1"):
        Store(POINT, 1)


def test_a_store_may_live_in_a_file(tmp_path):
    store = Store(MIXED, 10, directory=tmp_path)
    table = Table(MIXED, 5, store=store)
    table.insert(mixed(1, 2, 3))
    sample = table.sample(9)
    np.testing.assert_array_equal(sample.data["image"], mixed(*sample.data["n"])["image"])
    assert sum(f.stat().st_size for f in tmp_path.iterdir()) >= 10 * 63


def test_a_table_over_a_store_can_be_written_to_a_dataset(tmp_path):
    pytest.importorskip("pyarrow")
    _, old, high = pair()
    old.insert(points(*range(5)))
    high.insert(points(3, 1))
    with DatasetWriter(tmp_path / "d", POINT) as writer:
        writer.write_table(high)
    assert sorted(Dataset(tmp_path / "d").to_table().state()["columns"]["n"].tolist()) == [1, 3]


def test_a_moved_table_continues_exactly():
    _, old, _ = pair()
    for i in range(12):
        old.insert(points(i), [float(i)])
    store, other, _ = pair()
    other.restore(old.state())
    assert store.in_use == 8
    assert other.sample(1).data["n"].tolist() == old.sample(1).data["n"].tolist() == [4]
    for table in (old, other):
        table.insert(points(20, 21))
    assert contents(old) == contents(other)


def test_checkpoints_hold_an_item_once_and_restore_who_holds_it(tmp_path):
    _, old, high = pair(signature=MIXED)
    old.insert(mixed(*range(8)))
    keys = high.insert(mixed(6, 7, 8), [1.0, 3.0, 2.0])
    Checkpointer(tmp_path, {"old": old, "high": high}, block_bytes=200).save()
    store, old_again, high_again = pair(signature=MIXED)
    Checkpointer(tmp_path, {"old": old_again, "high": high_again}, block_bytes=200).load()
    assert store.in_use == 9
    assert high_again.sample(1).data["n"].tolist() == [7]
    old_again.remove(old_again.index.keys.copy())
    assert store.in_use == 3
    high_again.remove(keys)
    assert store.in_use == 0


def stacked_tables():
    pool = FramePool(images((4, 5, 3)), 120, -1)
    signature = transition_signature(images((4, 5, 3)), Int(()))
    store = Store(signature, 60, shared={"obs": pool, "next_obs": pool})
    tables = [Table(signature, 20, sampler="fifo", store=store), Table(signature, 10, remover="uniform", store=store)]
    return pool, store, tables


def test_a_store_of_frame_numbers_gives_back_images_and_frames():
    pool, store, tables = stacked_tables()
    plain = Table(tables[0].signature, 20, sampler="fifo")
    adders = [NStepAdder(tables, 2, 2), NStepAdder(plain, 2, 2)]
    env = Stacks(3, 2, -1, 0.1)
    for _ in range(40):
        step = env.step()
        for adder in adders:
            adder.add(**step)
    assert store.in_use <= 30
    for _ in range(20):
        a, b = tables[0].sample(1), plain.sample(1)
        for name in a.data:
            np.testing.assert_array_equal(a.data[name], b.data[name])
        tables[0].remove(a.keys)
        plain.remove(b.keys)
    assert (tables[1].sample(5).data["obs"] != 0).any()
    tables[1].remove(tables[1].index.keys.copy())
    assert store.in_use == 0
    held = {int(i) for step in adders[0]._sharing._held for i in step[0].ravel() if i >= 0}
    assert pool.in_use == len(held)


def test_a_writer_of_several_tables_sends_an_item_once_and_it_is_stored_once(tmp_path):
    address, directory = tmp_path / "s.sock", tmp_path / "d"

    def serving():
        store, old, high = pair(rows=40)
        server = TableServer({"old": old, "high": high}, address, directory=directory)
        return server, server.start(), store, old, high

    server, thread, store, old, high = serving()
    writer = Writer(address, ["old", "high"], POINT, actor=1)
    writer.insert(points(0, 1, 2), [5.0, 9.0, 7.0])
    writer.flush(5)
    ask_server(address, "checkpoint")
    writer.insert(points(3, 4), [8.0, 1.0])
    writer.close()
    assert contents(old) == [0, 1, 2, 3, 4]
    assert contents(high) == [1, 2, 3, 4]  # four places: number 4 took that of number 0, then the smallest
    assert store.in_use == 5
    server.stop()
    thread.join(10)
    journal = sum(path.stat().st_size for path in directory.glob("journal-*"))
    assert journal < 2 * 5 * (16 + 8) + 400
    server, thread, store, old, high = serving()
    assert contents(old) == [0, 1, 2, 3, 4]
    assert store.in_use == 5
    writer = Writer(address, ["old", "high"], POINT, actor=1)
    assert writer.sent == 5
    writer.close()
    sampler = Sampler(address, "high", POINT, 2)
    assert sampler.sample(5).data["n"].tolist() == [1, 1]
    sampler.close()
    with pytest.raises(DataError, match="unknown table 'low'"):
        Writer(address, ["old", "low"], POINT)
    server.stop()
    thread.join(10)


class StoreMachine(RuleBasedStateMachine):
    """Two tables over one store against two tables of their own."""

    @initialize(
        removers=st.tuples(*[st.sampled_from(["fifo", "lifo", "uniform", "max_heap", "min_heap"])] * 2),
        max_times=st.sampled_from([0, 2]),
    )
    def build(self, removers, max_times):
        self.options = [
            {"sampler": sampler, "remover": remover, "max_times_sampled": max_times, "seed": 5}
            for sampler, remover in zip(("uniform", "prioritized"), removers)
        ]
        self.make()
        self.plain = [Table(MIXED, 6, **options) for options in self.options]
        for table in self.plain:
            table.index.leave_ring(0)  # a circle of slots draws by other numbers

    def make(self):
        self.store = Store(MIXED, 40)
        self.tables = [Table(MIXED, 6, store=self.store, **options) for options in self.options]

    @rule(numbers=st.lists(st.integers(0, 30), min_size=1, max_size=5), which=st.sampled_from([(0,), (1,), (0, 1)]))
    def insert(self, numbers, which):
        for i in which:
            for table in (self.tables[i], self.plain[i]):
                table.insert(mixed(*numbers), np.asarray(numbers) / 3)

    @rule(i=st.sampled_from([0, 1]), n=st.integers(1, 3))
    def sample(self, i, n):
        if not self.plain[i].can_sample(n):
            assert not self.tables[i].can_sample(n)
            return
        a, b = self.tables[i].sample(n), self.plain[i].sample(n)
        for name in a.data:
            np.testing.assert_array_equal(a.data[name], b.data[name])

    @rule(i=st.sampled_from([0, 1]), data=st.data())
    def remove(self, i, data):
        keys = self.plain[i].index.keys
        if len(self.plain[i]):
            key = data.draw(st.sampled_from(keys[keys >= 0].tolist()))
            assert [table.remove([key]) for table in (self.plain[i], self.tables[i])] == [1, 1]

    @rule()
    def save_and_load(self):
        before = self.tables
        with tempfile.TemporaryDirectory() as directory:
            Checkpointer(directory, dict(zip("ab", before)), block_bytes=100).save()
            self.make()
            Checkpointer(directory, dict(zip("ab", self.tables)), block_bytes=100).load()

    @invariant()
    def the_same_items_are_stored_once(self):
        held = [contents(table) for table in self.tables]
        for numbers, plain in zip(held, self.plain):
            live = plain.index.keys >= 0
            assert numbers == sorted(plain.columns.arrays[plain.columns.paths.index("n")][live].tolist())
        assert self.store.in_use == len({*held[0], *held[1]})


StoreMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestStoreAgainstPlainTables = StoreMachine.TestCase


def test_frames_survive_batches_that_evict_each_other():
    # Last in, first out, full: each of the batch's items takes the place of the one before it.
    pool = FramePool(images((3, 4)), 20)
    table = Table(Dict(image=images((3, 4)), n=Int(())), 2, sampler="fifo", remover="lifo", shared={"image": pool})
    for start in range(0, 8, 2):
        n = np.arange(start, start + 2, dtype=np.int32)
        table.insert({"image": np.repeat(n.astype(np.uint8), 12).reshape(2, 3, 4), "n": n})
        assert pool.in_use == 2
    sample = table.sample(1)
    assert (sample.data["image"] == sample.data["n"][0]).all()


def test_float_items_are_compared_by_their_bytes():
    store = Store(Dict(x=Float(())), 10)
    table = Table(Dict(x=Float(())), 10, store=store)
    table.insert({"x": np.array([0.0, -0.0, np.nan, np.nan], np.float32)})
    assert store.in_use == 3
