"""The n-step adder against brute force over recorded episodes, for every autoreset mode."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starling.core.errors import CheckpointError, ConfigError, DataError
from starling.core.spaces import Dict, Float, Int
from starling.data import NStepAdder, Table, TransitionAdder, transition_signature

from .streams import MODES, brute_force_items, random_stream

SIGNATURE = transition_signature(Float((2,)), Int((), high=9), version=True, log_prob=Float(()))


def stored(table):
    """The items of a table as comparable tuples, in the order of insertion."""
    state = table.state()
    columns = state["columns"]
    order = np.argsort(state["index"]["keys"][: state["counters"]["extent"]])
    return [
        tuple(np.concatenate([np.ravel(columns[p][i]).astype(float) for p in sorted(columns)]).tolist()) for i in order
    ]


def feed(adder, stream):
    for step in stream:
        adder.add(**step)


STREAMS = given(
    seed=st.integers(0, 2**32),
    mode=st.sampled_from(MODES),
    n=st.integers(1, 5),
    num_envs=st.integers(1, 4),
    steps=st.integers(1, 25),
    end=st.floats(0.0, 0.9),
)


@settings(max_examples=300, deadline=None)
@STREAMS
def test_items_equal_brute_force_over_whole_episodes(seed, mode, n, num_envs, steps, end):
    check_against_brute_force(seed, mode, n, num_envs, steps, end)


@pytest.mark.slow
@settings(max_examples=10_000, deadline=None)
@STREAMS
def test_items_equal_brute_force_over_ten_thousand_streams(seed, mode, n, num_envs, steps, end):
    check_against_brute_force(seed, mode, n, num_envs, steps, end)


def check_against_brute_force(seed, mode, n, num_envs, steps, end):
    stream, episodes = random_stream(seed, mode, num_envs, steps, end)
    table = Table(SIGNATURE, 1000)
    adder = NStepAdder(table, num_envs, n, 0.9)
    feed(adder, stream)
    expected = brute_force_items(episodes, n, 0.9)
    np.testing.assert_allclose(sorted(stored(table)), sorted(expected), rtol=1e-6)


def test_three_steps_by_hand():
    # γ = 1/2, rewards 1 2 4, terminated at the third: 1 + 2/2 + 4/4 = 3, 2 + 4/2 = 4, 4.
    table = Table(transition_signature(Float(()), Int(())), 10)
    adder = NStepAdder(table, 1, 3, 0.5)
    for t, reward in enumerate([1.0, 2.0, 4.0]):
        end = np.array([t == 2])
        now, after = np.array([t], np.float32), np.array([0.0 if t == 2 else t + 1], np.float32)
        adder.add(now, np.zeros(1, np.int32), None, np.array([reward]), end, ~end & False, after, np.float32([3]))
    columns = table.state()["columns"]
    assert columns["reward"].tolist() == [3.0, 4.0, 4.0]
    assert columns["discount"].tolist() == [0.0, 0.0, 0.0]
    assert columns["obs"].tolist() == [0.0, 1.0, 2.0]
    assert columns["next_obs"].tolist() == [3.0, 3.0, 3.0]


def test_truncation_keeps_the_discount_and_the_final_observation():
    table = Table(transition_signature(Float(()), Int(())), 10)
    adder = NStepAdder(table, 1, 3, 0.5)
    yes, no, action = np.array([True]), np.array([False]), np.zeros(1, np.int32)
    adder.add(np.float32([0]), action, None, np.ones(1), no, no, np.float32([1]))
    adder.add(np.float32([1]), action, None, np.ones(1), no, yes, np.float32([70]), np.float32([2]))
    columns = table.state()["columns"]
    assert columns["reward"].tolist() == [1.5, 1.0]
    assert columns["discount"].tolist() == [0.25, 0.5]
    assert columns["next_obs"].tolist() == [2.0, 2.0]


@pytest.mark.parametrize("n", [1, 3])
def test_a_restored_adder_continues_exactly(n):
    stream, _ = random_stream(3, "same_step", 3, 40, 0.2)
    tables = [Table(SIGNATURE, 1000) for _ in range(2)]
    whole, resumed = (NStepAdder(table, 3, n) for table in tables)
    feed(whole, stream)
    feed(resumed, stream[:20])
    state = resumed.state()
    continued = NStepAdder(tables[1], 3, n)
    continued.restore(state)
    feed(continued, stream[20:])
    assert stored(tables[0]) == stored(tables[1])
    with pytest.raises(CheckpointError, match=r"float64\[\d, 3\] arrived, .* \(this adder has 2 environments\)"):
        NStepAdder(tables[0], 2, n).restore(state)


def test_initial_priorities_come_from_the_complete_items():
    table = Table(transition_signature(Float(()), Int(())), 10, sampler="max_heap")
    adder = TransitionAdder(table, 2, priority=lambda items: np.abs(items["reward"]))
    no = np.zeros(2, bool)
    obs = np.zeros(2, np.float32)
    adder.add(obs, np.zeros(2, np.int32), None, np.array([-3.0, 2.0]), no, no, obs)
    assert table.state()["index"]["priorities"][:2].tolist() == [3.0, 2.0]


def test_several_tables_receive_the_same_items():
    tables = [Table(SIGNATURE, 1000, sampler=s) for s in ("uniform", "prioritized")]
    stream, _ = random_stream(0, "next_step", 2, 30, 0.2)
    feed(NStepAdder(tables, 2, 2), stream)
    assert stored(tables[0]) == stored(tables[1])


def test_observations_may_be_trees():
    obs_space = Dict(a=Float((2,)), b=Int(()))
    table = Table(transition_signature(obs_space, Int(())), 10)
    adder = NStepAdder(table, 1, 2)
    no, action = np.zeros(1, bool), np.zeros(1, np.int32)
    for t in range(3):
        obs, after = ({"a": np.full((1, 2), k, np.float32), "b": np.array([k], np.int32)} for k in (t, t + 1))
        adder.add(obs, action, {}, np.ones(1), no, no, after)
    columns = table.state()["columns"]
    assert columns["obs.b"].tolist() == [0, 1]
    assert columns["next_obs.b"].tolist() == [2, 3]
    assert columns["next_obs.a"].tolist() == [[2, 2], [3, 3]]


def test_what_does_not_fit_is_refused_before_anything_changes():
    table = Table(SIGNATURE, 10)
    adder = NStepAdder(table, 1, 1)
    step = random_stream(0, "disabled", 1, 1, 0.0)[0][0]
    with pytest.raises(DataError, match="obs float64"):
        adder.add(**{**step, "obs": step["obs"].astype(np.float64)})
    with pytest.raises(DataError, match="log_prob"):
        adder.add(**{**step, "extras": {}})
    with pytest.raises(DataError, match="no final_obs"):
        adder.add(**{**step, "terminated": np.array([True]), "final_obs": None})
    assert len(table) == 0
    adder.add(**step)
    assert len(table) == 1


def test_impossible_adders_are_refused():
    table = Table(SIGNATURE, 10)
    with pytest.raises(ConfigError, match="n=0"):
        NStepAdder(table, 1, 0)
    with pytest.raises(ConfigError, match="gamma=2"):
        NStepAdder(table, 1, 1, 2)
    with pytest.raises(ConfigError, match="transition_signature"):
        NStepAdder(Table(Dict(x=Float(())), 10), 1, 1)
