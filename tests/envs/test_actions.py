"""Actions: inside their boxes when they reach the environment; and the log of them, what it keeps and for how long."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces as g

from starling.algorithms.policies import scaled_to_bounds
from starling.core.spaces import Dict, Float, Int
from starling.envs.actions import ActionCodec, ActionLog


@pytest.mark.parametrize("steps", [1, 1023, 1024, 1025, 5000])
def test_the_actions_of_a_running_episode_are_all_there(steps):
    log = ActionLog(Int((), 0, 10), 2)
    for t in range(steps):
        log.append(np.array([t % 10, (t + 1) % 10], np.int32), 0)
    assert log.since(0, 0).tolist() == [t % 10 for t in range(steps)]
    assert log.since(steps // 2, 1).tolist() == [(t + 1) % 10 for t in range(steps // 2, steps)]


def test_finished_episodes_make_room():
    log = ActionLog(Int((), 0, 10), 2)
    for t in range(100_000):
        log.append(np.array([t % 10, t % 7], np.int32), max(t - 300, 0))
    assert len(log._rows) <= 1024
    assert log.since(99_800, 1).tolist() == [t % 7 for t in range(99_800, 100_000)]


def test_an_episode_longer_than_the_limit_is_forgotten_and_memory_stays_bounded():
    log = ActionLog(Float((3,)), 2, limit=4096)
    for t in range(20_000):
        log.append(np.full((2, 3), t, np.float32), 0)
    assert len(log._rows) <= 4096
    assert log.since(0, 0) is None
    assert log.since(19_000, 0)[:, 0].tolist() == list(range(19_000, 20_000))


def test_trees_of_actions_are_kept_by_leaf():
    log = ActionLog(Dict(a=Int((), 0, 5), b=Float((2,))), 2)
    for t in range(3):
        log.append({"a": np.array([t, t + 1], np.int32), "b": np.full((2, 2), t, np.float32)}, 0)
    kept = log.since(1, 1)
    assert kept["a"].tolist() == [2, 3]
    assert kept["b"].tolist() == [[1, 1], [2, 2]]


def test_what_is_put_back_reads_as_it_was():
    log = ActionLog(Int((), 0, 100), 2)
    log.put_back([np.array([1, 2, 3]), np.array([9])], now=10)
    assert log.since(7, 0).tolist() == [1, 2, 3]
    assert log.since(9, 1).tolist() == [9]
    log.append(np.array([4, 8], np.int32), 7)
    assert log.since(7, 0).tolist() == [1, 2, 3, 4]
    assert log.since(9, 1).tolist() == [9, 8]


def random_boxes(dtype, count, seed):
    """Boxes of three numbers, from tiny to huge, off centre, some open on one side."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        scale = 10.0 ** rng.uniform(-3, 4)
        middle, width = rng.normal(0, scale, 3), np.abs(rng.normal(0, scale, 3)) + 1e-3 * scale
        low, high = (middle - width).astype(dtype), (middle + width).astype(dtype)
        low[rng.random(3) < 0.1] = -np.inf
        high[rng.random(3) < 0.1] = np.inf
        yield g.Box(low, high, dtype=dtype)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_whatever_is_sent_arrives_inside_the_box_in_its_dtype(dtype):
    """The bounds themselves, as float32 has them; a policy's −1 and 1 stretched to them; and far outside."""
    far = min(1e30, float(np.finfo(dtype).max))
    for box in random_boxes(dtype, 500, seed=1):
        codec = ActionCodec(box, 7)
        low, high = (np.broadcast_to(bound, 3) for bound in (codec.space.low, codec.space.high))
        finite = np.where(np.isfinite(low), low, -6e4), np.where(np.isfinite(high), high, 6e4)
        stretched = [scaled_to_bounds(Float((3,), *finite), np.float32(x)) for x in (-1, 1)]
        wild = [np.full(3, x) for x in (-far, far, 0)]
        sent = np.array([*stretched, *finite, *wild], np.float32)
        for arrived in (codec.batch(codec.accept(sent)), *codec.rows(codec.accept(sent))):
            assert arrived.dtype == box.dtype
            assert (arrived >= box.low).all()
            assert (arrived <= box.high).all()
        assert all(box.contains(row) for row in codec.rows(codec.accept(sent)))


def test_actions_inside_the_box_arrive_as_they_are_and_the_senders_array_is_left_alone():
    codec = ActionCodec(g.Box(-2, 3, (2,), np.float64), 2)
    sent = np.array([[-2.0, 3.0], [0.25, 9.0]], np.float32)
    assert codec.batch(codec.accept(sent)).tolist() == [[-2.0, 3.0], [0.25, 3.0]]
    assert sent.tolist() == [[-2.0, 3.0], [0.25, 9.0]]


def test_a_bound_that_float32_rounds_outward_is_kept():
    """0.1 is 0.10000000149… as float32, which lies outside a float64 box that ends at 0.1."""
    box = g.Box(-0.1, 0.1, (1,), np.float64)
    codec = ActionCodec(box, 1)
    assert float(np.float32(0.1)) > 0.1
    assert codec.rows(np.full((1, 1), 0.1, np.float32))[0].tolist() == [0.1]


def test_whole_numbers_stay_inside_their_box_and_boxes_in_a_tree_are_clipped_too():
    space = g.Dict(a=g.Box(-5, 5, (1,), np.int64), b=g.Tuple((g.Box(0, 1, (), np.float32), g.Discrete(3, start=1))))
    codec = ActionCodec(space, 1)
    sent = {"a": np.array([[9]]), "b": (np.array([2.0], np.float32), np.array([2], np.int32))}
    (row,) = codec.rows(codec.accept(sent))
    assert row["a"].tolist() == [5]
    assert row["b"] == (1.0, 3)


def test_what_is_not_a_number_is_not_hidden_by_clipping():
    codec = ActionCodec(g.Box(-1, 1, (1,), np.float32), 1)
    assert np.isnan(codec.rows(np.full((1, 1), np.nan, np.float32))[0]).all()
