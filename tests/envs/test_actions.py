"""The log of actions: what it keeps, and for how long."""

from __future__ import annotations

import numpy as np
import pytest

from starling.core.spaces import Dict, Float, Int
from starling.envs.actions import ActionLog


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
