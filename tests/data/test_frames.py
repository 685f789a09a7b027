"""Frames are stored once, and what comes out is what went in."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starling.core.errors import ConfigError, DataError, UnknownNameError
from starling.core.memory import available_memory
from starling.core.spaces import Dict, Int
from starling.data import (
    CompressedFramePool,
    FramePool,
    NStepAdder,
    SequenceAdder,
    Table,
    sequence_signature,
    transition_signature,
)
from starling.data.frames.compressed import compress, decompress
from starling.data.tables.kernels import address
from tests.data import filled

KINDS = [FramePool, CompressedFramePool]


def images(shape):
    return Int(shape, 0, 256, "uint8")


class Stacks:
    """Environments that stack frames; the newest frame carries the number of the step."""

    def __init__(self, seed, num_envs, axis, end, depth=3, same_first=True):
        self.rng, self.axis, self.end, self.depth = np.random.default_rng(seed), axis, end, depth
        self.same_first = same_first
        self.frames = [[] for _ in range(num_envs)]
        self.made = 0
        self.obs = np.stack([self.reset(b) for b in range(num_envs)])

    def frame(self):
        self.made += 1
        return self.rng.integers(0, 256, (4, 5), np.uint8)

    def reset(self, b):
        first = self.frame()
        blank = first if self.same_first else np.zeros_like(first)
        self.frames[b] = [blank] * (self.depth - 1) + [first]
        return np.stack(self.frames[b], self.axis)

    def step(self):
        obs, num_envs = self.obs, len(self.frames)
        terminated = self.rng.random(num_envs) < self.end
        final = np.zeros_like(obs)
        after = np.zeros_like(obs)
        for b in range(num_envs):
            self.frames[b] = [*self.frames[b][1:], self.frame()]
            after[b] = final[b] = np.stack(self.frames[b], self.axis)
            if terminated[b]:
                after[b] = self.reset(b)
        self.obs = after
        reward = self.rng.random(num_envs)
        return {
            "obs": obs.copy(),
            "action": np.zeros(num_envs, np.int32),
            "extras": None,
            "reward": reward,
            "terminated": terminated,
            "truncated": np.zeros(num_envs, bool),
            "next_obs": after.copy(),
            "final_obs": final if terminated.any() else None,
        }


def make_pool(kind, space, frames, axis):
    return kind(space, frames, axis, nbytes=256 * frames) if kind is CompressedFramePool else kind(space, frames, axis)


def tables_for(signature_of, axis, capacity, frames, leaves, kind=FramePool, depth=3, **options):
    shape = (4, 5, depth) if axis == -1 else (depth, 4, 5)
    signature = signature_of(images(shape), Int(()))
    pool = make_pool(kind, images(shape), frames, axis)
    plain = Table(signature, capacity, sampler="fifo", max_times_sampled=1, **options)
    shared = Table(
        signature, capacity, sampler="fifo", max_times_sampled=1, shared=dict.fromkeys(leaves, pool), **options
    )
    return plain, shared, pool


def assert_same_contents(plain, shared):
    n = len(plain)
    assert len(shared) == n
    a, b = plain.sample(n).data, shared.sample(n).data
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from([0, -1]),
    st.integers(1, 3),
    st.integers(1, 3),
    st.floats(0, 0.4),
    st.booleans(),
    st.sampled_from(KINDS),
)
def test_shared_transitions_equal_plain_ones_and_all_frames_are_given_back(seed, axis, num_envs, n, end, same, kind):
    plain, shared, pool = tables_for(transition_signature, axis, 50, 200, ["obs", "next_obs"], kind)
    env = Stacks(seed, num_envs, axis, end, same_first=same)
    adders = [NStepAdder(table, num_envs, n) for table in (plain, shared)]
    for _ in range(40):
        step = env.step()
        for adder in adders:
            adder.add(**step)
    assert_same_contents(plain, shared)
    held = {int(i) for step in adders[1]._sharing._held for i in step[0].ravel() if i >= 0}
    assert pool.in_use == len(held)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(0, 2), st.floats(0, 0.4), st.sampled_from(KINDS))
def test_shared_sequences_equal_plain_ones(seed, num_envs, overlap, end, kind):
    def signature_of(obs, action):
        return sequence_signature(obs, action, 4)

    plain, shared, _ = tables_for(signature_of, -1, 50, 200, ["obs"], kind)
    env = Stacks(seed, num_envs, -1, end)
    adders = [SequenceAdder(table, num_envs, overlap=overlap) for table in (plain, shared)]
    for _ in range(30):
        step = env.step()
        for adder in adders:
            adder.add(**step)
    if len(plain):
        assert_same_contents(plain, shared)


def test_four_frames_of_bytes_are_interleaved_as_they_were():
    obs = images((8, 4, 4))  # thirty-two bytes a frame: twice sixteen
    pool = FramePool(obs, 50, -1)
    table = Table(Dict(obs=obs), 10, sampler="fifo", max_times_sampled=1, shared={"obs": pool})
    shown = np.random.default_rng(0).integers(0, 256, (10, 8, 4, 4), np.uint8)
    table.insert({"obs": shown})
    np.testing.assert_array_equal(table.sample(10).data["obs"], shown)


def test_a_step_costs_one_frame_and_an_episode_one_more():
    _, shared, pool = tables_for(transition_signature, -1, 1000, 1100, ["obs", "next_obs"])
    env = Stacks(0, 1, -1, 0.05)
    adder = NStepAdder(shared, 1, 1)
    for _ in range(500):
        adder.add(**env.step())
    assert pool.in_use == env.made  # resets repeat their first frame: stored once as well


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_pool_removes_the_oldest_items(kind):
    plain, shared, pool = tables_for(transition_signature, 0, 1000, 60, ["obs", "next_obs"], kind)
    env = Stacks(1, 1, 0, 0.1)
    adders = [NStepAdder(table, 1, 1) for table in (plain, shared)]
    for _ in range(300):
        step = env.step()
        for adder in adders:
            adder.add(**step)
    kept = len(shared)
    assert 35 <= kept < 60
    newest = plain.sample(300).data["reward"][-kept:].copy()
    np.testing.assert_array_equal(shared.sample(kept).data["reward"], newest)
    assert pool.in_use <= 60


def test_two_tables_keep_one_copy():
    signature = transition_signature(images((4, 5, 3)), Int(()))
    pool = FramePool(images((4, 5, 3)), 300, -1)
    shared = {"obs": pool, "next_obs": pool}
    tables = [Table(signature, 100, sampler=s, shared=shared) for s in ("uniform", "prioritized")]
    env = Stacks(2, 1, -1, 0.1)
    adder = NStepAdder(tables, 1, 1)
    for _ in range(60):
        adder.add(**env.step())
    assert pool.in_use == env.made
    assert [len(t) for t in tables] == [60, 60]


def test_raw_items_can_be_inserted_and_share_frames_within_themselves():
    pool = FramePool(images((4, 5, 3)), 100, -1)
    table = Table(transition_signature(images((4, 5, 3)), Int(())), 10, shared={"obs": pool, "next_obs": pool})
    step = Stacks(2, 1, -1, 0.0).step()
    table.insert(
        {
            "obs": step["obs"],
            "action": step["action"],
            "reward": np.ones(1, np.float32),
            "discount": np.ones(1, np.float32),
            "next_obs": step["next_obs"],
        }
    )
    assert pool.in_use == 2  # the first frame three times, and the new one
    np.testing.assert_array_equal(table.sample(1).data["next_obs"], step["next_obs"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_table_and_adder_continue_exactly(kind):
    def make():
        _, shared, pool = tables_for(transition_signature, -1, 30, 60, ["obs", "next_obs"], kind)
        return shared, pool, NStepAdder(shared, 2, 2)

    env = Stacks(4, 2, -1, 0.1)
    steps = [env.step() for _ in range(60)]
    a, pool_a, adder_a = make()
    for step in steps[:30]:
        adder_a.add(**step)
    b, pool_b, adder_b = make()
    b.restore(a.state())
    adder_b.restore(adder_a.state())
    for step in steps[30:]:
        adder_a.add(**step)
        adder_b.add(**step)
    assert_same_contents(a, b)
    assert pool_a.in_use == pool_b.in_use


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 255), st.sampled_from([1, 1, 2, 3, 4, 127, 128, 129, 130, 131, 300])), min_size=1)
)
def test_squeezed_bytes_come_back_and_never_grow(runs):
    plain = np.concatenate([np.full(n, value, np.uint8) for value, n in runs] + [np.zeros(8, np.uint8)])
    packed, again = np.full(plain.size + 8, 170, np.uint8), np.empty_like(plain)
    length = compress(address(plain), plain.size, address(packed))
    assert length <= plain.size
    assert (packed[plain.size :] == 170).all()  # nothing was written behind the end
    decompress(address(packed), length, plain.size, address(again))
    np.testing.assert_array_equal(again, plain)


def test_screens_with_long_runs_take_a_fraction_of_their_bytes():
    obs = images((84, 84, 4))
    pool = CompressedFramePool(obs, 100, -1, nbytes=200_000)
    table = Table(Dict(obs=obs), 20, sampler="fifo", max_times_sampled=1, shared={"obs": pool})
    screens = np.full((20, 84, 84, 4), 87, np.uint8)
    for i in range(20):
        for j in range(4):
            screens[i, 10 + i : 14 + i, 20 + j : 30 + j, j] = 236  # a paddle that moves
    table.insert({"obs": screens})
    assert pool.bytes_in_use < 0.1 * pool.in_use * 84 * 84
    np.testing.assert_array_equal(table.sample(20).data["obs"], screens)
    with pytest.raises(ConfigError, match="two stacks"):
        CompressedFramePool(obs, 100, -1, nbytes=1000)


def test_a_million_steps_of_atari_fit_into_seven_and_a_half_gigabytes():
    obs, capacity = images((84, 84, 4)), 1_000_000
    frames = FramePool.frames_for(capacity)
    pool = frames * 84 * 84
    tiny = FramePool(obs, 8, -1)
    table = Table(
        transition_signature(obs, Int(()), version=True),
        1,
        sampler="prioritized",
        shared={"obs": tiny, "next_obs": tiny},
    )
    rest = sum(table.columns.widths) * capacity + table.index.nbytes(capacity, table.sampler, table.remover)
    assert pool + 9 * frames + rest <= 7.5e9


@pytest.mark.slow
@pytest.mark.skipif((available_memory() or 0) < 9e9, reason="needs 9 GB of free memory")
def test_a_million_steps_of_atari_were_put_into_seven_and_a_half_gigabytes():
    done = subprocess.run([sys.executable, filled.__file__], check=True, capture_output=True, text=True)
    assert 7.0 < float(done.stdout) <= 7.5


def test_what_does_not_fit_is_refused():
    pool = FramePool(images((4, 5, 3)), 6, -1)
    with pytest.raises(ConfigError, match="does not consist of those"):
        Table(Dict(obs=images((4, 5, 2))), 10, shared={"obs": pool})
    with pytest.raises(UnknownNameError, match="shared leaf"):
        Table(Dict(obs=images((4, 5, 3))), 10, shared={"ob": pool})
    with pytest.raises(ConfigError, match="stack_axis=1"):
        FramePool(images((4, 5, 3)), 10, 1)
    with pytest.raises(ConfigError, match="frames=2"):
        FramePool(images((4, 5, 3)), 2, -1)
    adder = NStepAdder(
        Table(transition_signature(images((4, 5, 3)), Int(())), 10, shared={"obs": pool, "next_obs": pool}), 1, 5
    )
    env = Stacks(0, 1, -1, 0.0)
    for _ in range(3):
        adder.add(**env.step())
    with pytest.raises(DataError, match="make the pool larger"):
        adder.add(**env.step())
