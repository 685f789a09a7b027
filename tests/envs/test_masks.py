"""Masks that allow nothing."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from starling.core.errors import EnvError
from starling.core.spaces import Bool, Dict, Float, Int
from starling.envs import GymEnvs, VectorEnvs, check, make
from starling.envs.masks import has_mask, rows_without_choice
from tests.envs.misbehaving import Stuck


def walk(envs, steps):
    envs.reset()
    return [envs.step(np.zeros(envs.count, np.int64)) for _ in range(steps)]


@pytest.mark.parametrize("inside", [False, True])
def test_a_mask_that_allows_nothing_is_refused_with_environment_seed_and_step(inside):
    with make(Stuck, 2, 0, inside=inside) as envs:
        seed = envs.state()["envs"][0]["seed"]
        place = f"Stuck, environment 0, episode seed {seed}, step 3 of the episode"
        with pytest.raises(EnvError, match=f"{place}: the action mask allows no action"):
            walk(envs, 3)


@pytest.mark.parametrize("inside", [False, True])
def test_where_an_episode_ends_no_action_need_be_legal(inside):
    steps = walk(GymEnvs(functools.partial(Stuck, at_the_end=True, inside=inside), 2, 0, "Stuck"), 40)
    assert sum(len(step.episodes) for step in steps) >= 2
    assert all(step.obs["action_mask"].any(axis=1).all() for step in steps)


def test_a_reset_that_allows_nothing_is_refused():
    class Frozen(Stuck):
        def reset(self, *, seed=None, options=None):
            obs, info = super().reset(seed=seed)
            return obs, {"action_mask": 0 * info["action_mask"]}

    with pytest.raises(EnvError, match="step 0 of the episode: the action mask allows no action"):
        GymEnvs(Frozen, 1, 0, "Frozen")


@pytest.mark.parametrize("mode", AutoresetMode)
def test_vectorised_environments_are_held_to_the_same(mode):
    def vectorised(**settings):
        env = SyncVectorEnv([functools.partial(Stuck, **settings)] * 2, autoreset_mode=mode)
        return VectorEnvs(env, 0, "Stuck")

    with pytest.raises(EnvError, match="step 3 under seed 0, environment 0: the action mask allows no action"):
        walk(vectorised(), 3)
    steps = walk(vectorised(at_the_end=True), 40)
    assert sum(len(step.episodes) for step in steps) >= 2


def test_a_check_finds_it():
    (finding,) = [finding for finding in check(Stuck) if finding.level == "error"]
    assert finding.what == "action mask"
    assert finding.found == "the action mask allows no action at step 3 of an episode"
    assert not [f for f in check(functools.partial(Stuck, at_the_end=True)) if f.level == "error"]


def test_which_rows_have_no_choice():
    mask = np.array([[True, False], [False, False], [False, True], [False, False]])
    assert rows_without_choice({"action_mask": mask}) == [1, 3]
    assert rows_without_choice({"action_mask": mask[::2]}) == []


def test_which_observations_have_a_mask():
    assert has_mask(Dict(action_mask=Bool((2,)), observation=Float()))
    assert not has_mask(Dict(action_mask=Int(), observation=Float()))
    assert not has_mask(Dict(inner=Dict(action_mask=Bool((2,)))))
    assert not has_mask(Bool((2,)))
