"""Every transition of every implementation and autoreset mode, against the counting environment."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from starling.envs import Envs, GymEnvs, VectorEnvs

from .counting import Counting, place_of

B = 3
WAYS = ["gym", *AutoresetMode]


def counting_envs(way: str | AutoresetMode, form: str, vector: type = SyncVectorEnv) -> Envs:
    if way == "gym":
        index = itertools.count()
        return GymEnvs(lambda: Counting(next(index), form), B, 0, "Counting")
    constructors = [functools.partial(Counting, i, form) for i in range(B)]
    return VectorEnvs(vector(constructors, autoreset_mode=way), 0, "Counting")


def verify(envs: Envs, next_step: bool, steps: int = 60) -> None:
    rng = np.random.default_rng(1)
    place = place_of(envs.reset())
    assert place.tolist() == [[i, 0, 0, -1] for i in range(B)]
    ended = np.zeros(B, bool)
    finished = []
    for _ in range(steps):
        action = rng.integers(0, 5, B)
        step = envs.step(action)
        now = place_of(step.obs)
        final = None if step.final_obs is None else place_of(step.final_obs)
        previously_ended, ended = ended, np.zeros(B, bool)
        for i in range(B):
            _, episode, count, _ = place[i].astype(int)
            if next_step and previously_ended[i]:
                assert not step.valid[i]
                assert now[i].tolist() == [i, episode + 1, 0, -1]
                assert not step.terminated[i]
                assert not step.truncated[i]
                continue
            assert step.valid[i]
            successor = [i, episode, count + 1, action[i]]
            length = 2 + (i + episode) % 3
            assert step.reward[i] == 1000 * i + 10 * episode + count + 1
            assert step.terminated[i] == (count + 1 == length and (i + episode) % 2 == 0)
            assert step.truncated[i] == (count + 1 == length and (i + episode) % 2 == 1)
            if count + 1 < length:
                assert now[i].tolist() == successor
                continue
            ended[i] = True
            assert final is not None
            assert final[i].tolist() == successor
            assert now[i].tolist() == (successor if next_step else [i, episode + 1, 0, -1])
            total = sum(1000 * i + 10 * episode + k for k in range(1, length + 1))
            finished.append((i, total, length))
        assert (final is None) == (not ended.any())
        assert [tuple(e) for e in step.episodes] == finished[len(finished) - int(ended.sum()) :]
        place = now
    assert len(finished) > 20


@pytest.mark.parametrize("form", ["vector", "dict", "tuple"])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_every_transition_is_right(way, form):
    with counting_envs(way, form) as envs:
        verify(envs, next_step=way is AutoresetMode.NEXT_STEP)


@pytest.mark.parametrize("way", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP], ids=str)
def test_every_transition_is_right_across_processes(way):
    spawned = functools.partial(AsyncVectorEnv, context="spawn")  # a fork would copy the threads of other tests
    with counting_envs(way, "vector", spawned) as envs:
        verify(envs, next_step=way is AutoresetMode.NEXT_STEP, steps=40)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_kept_arrays_are_never_written_again(way):
    with counting_envs(way, "vector") as envs:
        kept = [envs.reset()]
        copies = [kept[0].copy()]
        for _ in range(20):
            step = envs.step(np.zeros(B, np.int32))
            for array in (step.obs, step.reward, step.terminated, step.truncated, step.final_obs, step.valid):
                if array is not None:
                    kept.append(array)
                    copies.append(array.copy())
        for array, copy in zip(kept, copies):
            np.testing.assert_array_equal(array, copy)


def test_reset_in_mid_episode_begins_anew_and_reports_no_episode():
    with counting_envs("gym", "vector") as envs:
        envs.reset()
        envs.step(np.zeros(B, np.int32))
        assert envs.reset().tolist() == [[i, 1, 0, -1] for i in range(B)]
        step = envs.step(np.zeros(B, np.int32))
        assert step.episodes == []
        step = envs.step(np.zeros(B, np.int32))
        assert [tuple(e) for e in step.episodes] == [(2, 2010 + 1 + 2010 + 2, 2)]
