"""A state in which a number leads elsewhere is refused: what follows it would read or write beyond an array."""

import copy

import numpy as np
import pytest

from starling.core.errors import CheckpointError, StarlingError
from starling.core.spaces import Dict, Float, Int
from starling.core.trees import items
from starling.data import (
    Chunk,
    CompressedFramePool,
    FramePool,
    NStepAdder,
    SequenceAdder,
    Store,
    Table,
    prioritized,
    sequence_signature,
    transition_signature,
)
from starling.data.adders.returns import ReturnsSoFar
from starling.data.tables.pooled import PooledTable
from starling.data.tables.selectors import HEAD

from .helpers import POINT, points

FRAME = Int((4, 4, 2), 0, 256, "uint8")
TRANSITION = transition_signature(FRAME, Int(()))


def changed(state, path, change):
    """A copy of a state in which ``change`` was made to the value at a path, or which has that value there."""
    state = copy.deepcopy(state)
    *parents, name = path.split("/")
    part = state
    for key in parents:
        part = part[key]
    part[name] = change(part[name]) if callable(change) else change
    return state


def put(place, value):
    """The same array with another number at a place of it."""

    def change(array):
        array.reshape(-1)[place] = value
        return array

    return change


def assert_refused(owner, state, match):
    before = dict(items(owner.state()))
    with pytest.raises(CheckpointError, match=match):
        owner.restore(state)
    after = dict(items(owner.state()))
    for path in before:
        np.testing.assert_array_equal(before[path], after[path], err_msg=path)


def nstep(pool=None):
    """An adder that has open windows."""
    signature = transition_signature(Float((2,)), Int(())) if pool is None else TRANSITION
    table = Table(signature, 20, shared={} if pool is None else {"obs": pool, "next_obs": pool})
    return NStepAdder(table, 2, 3), table


def feed(adder, steps, seed=0):
    rng, no = np.random.default_rng(seed), np.zeros(2, bool)
    leaf = dict(adder.signature["obs"].items())[""]
    shape = leaf.shape[-3:] if leaf.numpy_dtype == np.uint8 else (2,)
    seen = rng.integers(0, 200, (2, *shape)).astype(leaf.dtype)
    for _ in range(steps):
        after = rng.integers(0, 200, (2, *shape)).astype(leaf.dtype)
        adder.add(seen, np.zeros(2, np.int32), None, np.ones(2), no, no, after)
        seen = after


@pytest.mark.parametrize(
    ("path", "change", "match"),
    [
        ("open", put(1, 2**40), "'open' from 2 to 1099511627776 arrived, a range from 0 to 2"),
        ("open", put(0, -1), "'open' from -1"),
        ("open", lambda array: array.astype(np.float64), r"'open' float64\[2\] arrived, int64\[2\]"),
        ("newest", 2**40, "'newest' = 1099511627776 arrived, a whole number from 0 to 2"),
        ("newest", -1, "'newest' = -1"),
        ("version", 2**80, "'version'"),
        ("returns", lambda array: array[:2], r"'returns' float64\[2, 2\] arrived"),
        ("pending/obs/0", lambda array: array[:, :1], r"'0' float32\[6, 1\] arrived"),
        ("pending", {}, "nothing under '0'"),
    ],
)
def test_numbers_of_open_windows_that_lead_nowhere_are_refused(path, change, match):
    adder, _ = nstep()
    feed(adder, 4)
    assert_refused(adder, changed(adder.state(), path, change), match)


@pytest.mark.parametrize(
    ("path", "change", "match"),
    [
        ("count", put(0, 2**40), "'count' from 1 to 1099511627776 arrived, a range from 0 to 2"),
        ("count", put(0, 3), "'count' from 1 to 3"),
        ("first", lambda array: array.astype(np.int8), "'first' int8"),
        ("rows/obs/0", lambda array: array[:, :3], r"'0' float32\[2, 3, 2\] arrived"),
        ("rows/reward", {}, "nothing under '0'"),
    ],
)
def test_numbers_of_unfinished_sequences_that_lead_nowhere_are_refused(path, change, match):
    adder = SequenceAdder(Table(sequence_signature(Float((2,)), Int(()), 3), 20), 2)
    feed(adder, 4)
    assert_refused(adder, changed(adder.state(), path, change), match)


@pytest.mark.parametrize(
    ("path", "change", "match"),
    [
        ("shared/held/0", put(0, 2**30), "'0' from .* a range from -1 to 59"),
        ("shared/held/0", put(0, -1), "a stack has all of its frames, or none"),
        ("shared/held/0", lambda ids: np.full_like(ids, 59), "the pool holds the frames it refers to"),
        ("shared/held/0", lambda ids: np.concatenate([ids, ids, ids]), "at most 4 steps are held"),
        ("shared/held/0", lambda ids: np.full_like(ids, ids.flat[0]), "the pool has counted it"),
        ("pending/obs/0", put(0, 2**30), "'obs.0' from"),
        ("pending/obs/0", lambda ids: np.full_like(ids, 59), "the pool holds the frames it refers to"),
    ],
)
def test_frames_of_unfinished_items_that_nobody_holds_are_refused(path, change, match):
    pool = FramePool(FRAME, 60, -1)
    adder, table = nstep(pool)
    feed(adder, 6)
    state, kept = adder.state(), table.state()
    table.restore(kept)
    assert_refused(adder, changed(state, path, change), match)
    adder.restore(state)


def test_frames_are_claimed_once_from_a_pool_that_was_restored():
    pool = FramePool(FRAME, 60, -1)
    adder, table = nstep(pool)
    feed(adder, 6)
    state, kept = adder.state(), table.state()
    table.restore(kept)
    adder.restore(state)
    with pytest.raises(CheckpointError, match="the pool has counted it; restore the tables first"):
        NStepAdder(table, 2, 3).restore(state)  # a second adder would give the same frames back once more


def test_an_adder_that_has_seen_nothing_is_restored():
    adder, _ = nstep(FramePool(FRAME, 60, -1))
    state = adder.state()
    feed(adder, 1)
    adder.restore(state)
    assert adder.state()["shared"] == {"held": {}}


def test_a_chunk_refuses_leaves_of_different_lengths():
    chunk = Chunk(POINT, 4)
    state = {"items": {"0": np.zeros(2, np.int64), "1": np.zeros((3, 2), np.float32)}}
    with pytest.raises(CheckpointError, match=r"'1' float32\[3, 2\] arrived, float32\[2, 2\]"):
        chunk.restore(state)


def test_returns_of_other_environments_are_refused():
    returns = ReturnsSoFar(3, 0.9)
    for state in (np.zeros(2, np.float32), np.zeros(3, np.int64), None, "x"):
        with pytest.raises(CheckpointError, match="'returns'"):
            returns.restore(state)
    returns.restore(np.ones(3))
    assert returns.state().tolist() == [1.0, 1.0, 1.0]


def table_of(sampler="uniform", remover="uniform", **options):
    """A table that was inserted into, drawn from, and lost an item from its middle."""
    table = Table(POINT, 6, sampler=sampler, remover=remover, **options)
    keys = table.insert(points(*range(5)), np.arange(5) + 1.0)
    table.remove(keys[2:3])
    table.sample(2)
    return table


def swapped(i, j):
    def change(array):
        array[[i, j]] = array[[j, i]]
        return array

    return change


INDEX = [
    ("counters/size", 2**40, "'size'"),
    ("counters/size", 3, "items lie in the first"),
    ("counters/extent", 4, r"'n' int64\[5\] arrived, int64\[4\]"),
    ("counters/inserts", -1, "'inserts' = -1"),
    ("counters/evicted", 2**40, "'evicted'"),
    ("counters/ring", 1, "slots lie in a circle"),
    ("counters/largest_sample", 10**400, "'largest_sample'"),
    ("counters/capacity", 7, "'capacity' = 7 arrived, 6 was expected"),
    ("largest_priority", np.nan, "'largest_priority' = nan"),
    ("largest_priority", 1e300, "'largest_priority'"),
    ("generator/position", put(0, -(2**40)), "'position' from -1099511627776"),
    ("generator/position", put(0, 5), "'position' from 5"),
    ("generator/counter", lambda array: array[:2], r"'counter' uint64\[2\] arrived, uint64\[4\]"),
    ("index/keys", put(0, 2**40), "'keys'"),
    ("index/keys", put(2, 8), "items lie in the first"),  # of the slot that is empty
    ("index/priorities", put(0, np.inf), "'priorities'"),
    ("index/times", put(0, 7), "'times'"),
    ("index/free", put(0, 2**40), "'free'"),
    ("index/free", put(0, -1), "'free'"),
    ("index/free", put(1, 99), "number of draws"),
    ("index/free", put(2, 2**40), "'free'"),
    ("index/free", put(2, 0), "'free'"),  # a slot that holds an item
    ("index/sampling_ints", put(0, 2**40), "'sampling_ints'"),
    ("index/sampling_ints", put(HEAD, 2**40), "'sampling_ints'"),
    ("index/sampling_ints", put(HEAD, -1), "'sampling_ints'"),
    ("index/sampling_ints", put(HEAD + 6, 2**40), "place of each item|there and back"),
    ("index/sampling_ints", lambda array: array.astype(np.int32), "'sampling_ints' int32"),
    ("index/removing_ints", put(HEAD + 1, 2**40), "'removing_ints'"),
]


@pytest.mark.parametrize(("path", "change", "match"), INDEX)
@pytest.mark.parametrize("kind", ["uniform", "prioritized", "min_heap"])
def test_numbers_of_an_index_that_lead_nowhere_are_refused(kind, path, change, match):
    table = table_of(kind, "uniform")
    assert_refused(table, changed(table.state(), path, change), match)


@pytest.mark.parametrize(
    ("place", "value"),
    [(0, 2**40), (1, 2**40), (0, -1), (HEAD, 2**40), (HEAD, 0), (HEAD + 3, 0), (HEAD + 6 + 1, 2**40), (HEAD + 4, 3)],
)
def test_a_list_that_is_left_or_runs_in_a_circle_is_refused(place, value):
    table = table_of("fifo", "lifo")
    for name in ("sampling_ints", "removing_ints"):
        state = changed(table.state(), f"index/{name}", put(place, value))
        assert_refused(table, state, "leads through all items, there and back")


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0, 5.0])
def test_a_sum_tree_whose_sums_are_others_is_refused(value):
    table = table_of("prioritized")
    state = table.state()
    for place in np.flatnonzero(state["index"]["sampling_floats"]):
        damaged = changed(state, "index/sampling_floats", put(place, value))
        assert_refused(table, damaged, "'sampling_floats' breaks the rule")


def test_a_heap_that_is_out_of_order_is_refused():
    table = table_of("min_heap")
    state = changed(table.state(), "index/sampling_ints", swapped(HEAD, HEAD + 3))
    state = changed(state, "index/sampling_ints", swapped(HEAD + 6, HEAD + 6 + 3))
    assert_refused(table, state, "no item lies above a smaller one")
    state = changed(table.state(), "index/sampling_floats", put(0, 0.25))
    assert_refused(table, state, "sorted by their priorities")


@pytest.mark.parametrize(
    ("path", "change", "match"),
    [
        ("counters/inserts", 2**40, "filled from slot 0 on"),
        ("counters/evicted", 1, "filled from slot 0 on|'evicted'"),
        ("index/priorities", put(0, np.nan), "'priorities'"),
        ("index/sampling_floats", lambda array: array + 1.0, "weights follow from the priorities"),
    ],
)
def test_a_circle_of_slots_that_is_none_is_refused(path, change, match):
    table = Table(POINT, 6, sampler=prioritized(0.5))
    table.insert(points(*range(4)), np.arange(4.0))
    assert_refused(table, changed(table.state(), path, change), match)


POOLS = {
    "plain": lambda: FramePool(FRAME, 40, -1),
    "compressed": lambda: CompressedFramePool(FRAME, 40, -1, nbytes=40 * 256),
}


def framed(kind):
    pool = POOLS[kind]()
    table = Table(TRANSITION, 8, remover="uniform", shared={"obs": pool, "next_obs": pool})
    rng = np.random.default_rng(0)
    for _ in range(10):
        obs = np.tile(rng.integers(0, 250, (2, 1, 4, 1, 1), np.uint8), (4, 2))  # runs of four
        item = {"obs": obs[0], "next_obs": obs[1], "action": np.zeros(1, np.int32)}
        table.insert({**item, "reward": np.zeros(1, np.float32), "discount": np.zeros(1, np.float32)})
    return table


def repeated(array):
    """The list of free numbers with one of them twice."""
    array[2] = array[1]
    return array


@pytest.mark.parametrize("kind", POOLS)
@pytest.mark.parametrize(
    ("path", "change", "match"),
    [
        ("references", put(0, -1), "'references' from -1"),
        ("references", put(0, 0), "'free'"),
        ("free", put(0, 2**30), "'free'"),
        ("free", put(0, -3), "'free'"),
        ("free", put(1, 2**30), "'free'"),
        ("free", repeated, "'free'"),
        ("generation", lambda array: array[:-1], "'generation'"),
        ("rows", lambda array: array[:1], "were ever written|'firsts'"),
        ("rows", lambda array: np.zeros((99, *array.shape[1:]), np.uint8), "'extent' = 99"),
    ],
)
def test_numbers_of_a_pool_that_lead_nowhere_are_refused(kind, path, change, match):
    table = framed(kind)
    assert_refused(table, changed(table.state(), f"pools/0/{path}", change), match)


@pytest.mark.parametrize(
    ("path", "change", "match"),
    [
        ("lengths", lambda array: array * 0 + 2**30, "'lengths'"),
        ("lengths", lambda array: array * 0, "'lengths'"),
        ("firsts", lambda array: array * 0 + 2**30, "'firsts'"),
        ("firsts", lambda array: array * 0, "a block is part of one frame"),
        ("free_blocks", put(0, 2**30), "'free_blocks'"),
        ("free_blocks", repeated, "'free_blocks'"),
    ],
)
def test_chains_of_blocks_that_lead_nowhere_are_refused(path, change, match):
    table = framed("compressed")
    assert_refused(table, changed(table.state(), f"pools/0/{path}", change), match)


@pytest.mark.parametrize(
    ("path", "change", "match"),
    [
        ("columns/obs", put(0, 2**30), "'obs' from .* a range from -1 to 39"),
        ("columns/obs", put(0, -1), "a stack has all of its frames, or none"),
        ("columns/obs", lambda ids: np.full_like(ids, 39), "the pool holds the frames it refers to"),
        ("columns/obs", lambda ids: np.full_like(ids, ids.flat[0]), "more often than their pool has counted"),
        ("pools/0/rows", lambda rows: np.full_like(rows, 255), "cannot be unpacked to 16 bytes"),
    ],
)
def test_items_that_refer_to_what_is_not_there_leave_an_empty_table(path, change, match):
    table = framed("compressed")
    state = table.state()
    with pytest.raises(CheckpointError, match=match):
        table.restore(changed(state, path, change))
    assert len(table) == table.inserts == 0
    assert next(iter(table.contents.pools().values())).in_use == 0
    table.restore(state)
    assert len(table) == 8


def test_rows_of_a_store_that_are_not_there_are_refused():
    store = Store(POINT, 10)
    table = Table(POINT, 6, store=store)
    table.insert(points(1, 2, 3))
    for value, match in ((2**40, r"'\(row\)' from"), (-1, "from -1"), (9, "the pool holds the frames")):
        state = table.state()
        with pytest.raises(CheckpointError, match=match):
            table.restore(changed(state, "columns/(row)", put(0, value)))
        table.restore(state)


IMAGE = Dict(image=Int((64, 64, 3), 0, 256, "uint8"))


@pytest.mark.parametrize(
    ("state", "match"),
    [
        ({"planes": {"stacked": True, "frames": 2**40}, "table": {}}, "'frames' = 1099511627776"),
        ({"planes": {"stacked": 7, "frames": 99}, "table": {}}, "'stacked' = 7"),
        ({"planes": {}, "table": {}}, "nothing under 'stacked'"),
        ({"waiting": 3}, "'waiting' breaks the rule"),
        ({"waiting": [(IMAGE.ranked(batch=True).zeros((2,)), np.ones(3))]}, r"float64\[3\] arrived, float64\[2\]"),
        ({"waiting": [({"image": np.zeros((2, 64, 64), np.uint8)}, None)]}, "at 'image'"),
    ],
)
def test_a_table_that_makes_its_pools_refuses_what_no_estimate_comes_to(state, match):
    with pytest.raises(StarlingError, match=match):
        PooledTable(IMAGE, 100).restore(state)


def test_a_table_that_makes_its_pools_goes_on_from_items_that_wait():
    seen, other = PooledTable(IMAGE, 100), PooledTable(IMAGE, 100)
    seen.insert(IMAGE.ranked(batch=True).zeros((2,)), np.ones(2, np.float32))
    other.insert(IMAGE.ranked(batch=True).zeros((5,)))
    assert other.table.inserts == 5
    other.restore(seen.state())  # over a table that was made already
    assert other.table.inserts == 2
