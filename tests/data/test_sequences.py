"""The sequence adder against brute force over recorded episodes, for every autoreset mode."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starling.core.errors import CheckpointError, ConfigError, DataError
from starling.core.spaces import Dict, Float, Int
from starling.data import EpisodeAdder, SequenceAdder, Table, sequence_signature, transition_signature

from .streams import MODES, brute_force_sequences, random_stream


def signature(length):
    memory, log_prob = Float((2,)), Float(())
    return sequence_signature(Float((2,)), Int((), high=9), length, memory, version=True, log_prob=log_prob)


def with_memory(stream):
    """The stream with a memory that identifies the step: twice the observation."""
    return [{**step, "extras": {**step["extras"], "memory": 2 * step["obs"]}} for step in stream]


def stored(table):
    state = table.state()
    order = np.argsort(state["index"]["keys"][: state["counters"]["extent"]])
    columns = state["columns"]
    return [np.concatenate([np.ravel(columns[p][i]).astype(float) for p in sorted(columns)]).tolist() for i in order]


STREAMS = given(
    seed=st.integers(0, 2**32),
    mode=st.sampled_from(MODES),
    length=st.integers(1, 6),
    data=st.data(),
    num_envs=st.integers(1, 3),
    steps=st.integers(1, 30),
    end=st.floats(0.0, 0.6),
)


@settings(max_examples=300, deadline=None)
@STREAMS
def test_sequences_equal_brute_force_over_whole_episodes(seed, mode, length, data, num_envs, steps, end):
    check_against_brute_force(seed, mode, length, data, num_envs, steps, end)


@pytest.mark.slow
@settings(max_examples=10_000, deadline=None)
@STREAMS
def test_sequences_equal_brute_force_over_ten_thousand_streams(seed, mode, length, data, num_envs, steps, end):
    check_against_brute_force(seed, mode, length, data, num_envs, steps, end)


def check_against_brute_force(seed, mode, length, data, num_envs, steps, end):
    overlap, burn_in = data.draw(st.integers(0, length - 1)), data.draw(st.integers(0, length - 1))
    stream, episodes = random_stream(seed, mode, num_envs, steps, end)
    table = Table(signature(length), 1000)
    adder = SequenceAdder(table, num_envs, overlap=overlap, burn_in=burn_in)
    emitted = sum(adder.add(**step) for step in with_memory(stream))
    expected = brute_force_sequences(episodes, length, overlap, burn_in)
    assert emitted == len(expected)
    np.testing.assert_allclose(sorted(stored(table)), sorted(expected), rtol=1e-6)


def test_an_episode_of_five_steps_in_sequences_of_four_with_overlap_two():
    table = Table(sequence_signature(Float(()), Int(()), 4), 10)
    adder = SequenceAdder(table, 1, overlap=2)
    yes, no = np.array([True]), np.array([False])
    for t in range(5):
        end = yes if t == 4 else no
        obs, after = np.float32([t]), np.float32([0 if t == 4 else t + 1])
        adder.add(obs, np.int32([t]), None, np.array([10.0 * t]), end, no, after, np.float32([5]))
    columns = table.state()["columns"]
    assert columns["obs"].tolist() == [[0, 1, 2, 3, 4], [2, 3, 4, 5, 0]]
    assert columns["reward"].tolist() == [[0, 10, 20, 30], [20, 30, 40, 0]]
    assert columns["terminated"].tolist() == [[False] * 4, [False, False, True, False]]
    assert not columns["truncated"].any()
    assert columns["mask"].tolist() == [[True] * 4, [True, True, True, False]]


@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize("length", [2, 3])
def test_the_true_final_observation_lies_behind_the_last_step(length, truncated):
    # Two steps 0 → 1 → 2, then a reset to 70: in a sequence that is full, and in one that is padded.
    table = Table(sequence_signature(Float(()), Int(()), length), 10)
    adder, yes, no = SequenceAdder(table, 1), np.array([True]), np.array([False])
    adder.add(np.float32([0]), np.int32([0]), None, np.array([5.0]), no, no, np.float32([1]))
    ends = (no, yes) if truncated else (yes, no)
    adder.add(np.float32([1]), np.int32([0]), None, np.array([-6.0]), *ends, np.float32([70]), np.float32([2]))
    item = table.sample(1).data
    assert item["obs"][0].tolist() == [0, 1, 2, 0][: length + 1]
    assert item["reward"][0].tolist() == [5, -6, 0][:length]
    assert item["terminated"][0].tolist() == [False, not truncated, False][:length]
    assert item["truncated"][0].tolist() == [False, truncated, False][:length]
    assert item["mask"][0].tolist() == [True, True, False][:length]


def test_an_empty_memory_is_none():
    assert "memory" not in sequence_signature(Float(()), Int(()), 3, memory=Dict()).spaces


def test_whole_episodes_are_padded_to_the_length():
    table = Table(sequence_signature(Float(()), Int(()), 4), 10)
    adder = EpisodeAdder(table, 1)
    no = np.array([False])
    for t in range(5):
        end = np.array([t in (1, 4)])
        obs = np.float32([t])
        adder.add(obs, np.int32([t]), None, np.ones(1), end, no, obs, obs)
    assert table.state()["columns"]["mask"].sum(axis=1).tolist() == [2, 3]


def test_a_restored_adder_continues_exactly():
    stream = with_memory(random_stream(3, "next_step", 3, 60, 0.1)[0])
    tables = [Table(signature(5), 1000) for _ in range(2)]
    whole, resumed = (SequenceAdder(table, 3, overlap=2, burn_in=1) for table in tables)
    for step in stream:
        whole.add(**step)
    for step in stream[:31]:
        resumed.add(**step)
    continued = SequenceAdder(tables[1], 3, overlap=2, burn_in=1)
    continued.restore(resumed.state())
    for step in stream[31:]:
        continued.add(**step)
    assert len(tables[0]) > 10
    assert stored(tables[0]) == stored(tables[1])
    with pytest.raises(CheckpointError, match=r"'count' int64\[3\] arrived, .* \(this adder has 2 environments\)"):
        SequenceAdder(tables[0], 2).restore(resumed.state())


def test_impossible_sequences_are_refused():
    table = Table(signature(3), 10)
    with pytest.raises(ConfigError, match="overlap=3"):
        SequenceAdder(table, 1, overlap=3)
    with pytest.raises(ConfigError, match="sequence_signature"):
        SequenceAdder(Table(transition_signature(Float(()), Int(())), 3), 1)
    step = random_stream(0, "disabled", 1, 1, 0.0)[0][0]
    with pytest.raises(DataError, match="'memory' was expected"):
        SequenceAdder(table, 1).add(**step)
    with pytest.raises(ConfigError, match="num_envs=0"):
        SequenceAdder(table, 0)
    with pytest.raises(ConfigError, match="length=0"):
        sequence_signature(Float(()), Int(()), 0)
