"""Environments with a vectorised form of their own: taken where it can be put back exactly, and only there."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from starling.core.errors import CheckpointError
from starling.envs import GymEnvs, VectorEnvs, check, make
from starling.envs.gym_envs import NEVER
from starling.envs.snapshots import can_be_put_back, put_back, snapshot
from starling.records import checkpoint

B = 8


class HiddenState(CartPoleVectorEnv):
    """Keeps something where no snapshot looks."""

    def reset(self, **kwargs):
        self.hidden = [0.0]
        return super().reset(**kwargs)

    def step(self, action):
        obs, reward, *rest = super().step(action)
        self.hidden[0] += 1
        return obs, reward + np.float32(self.hidden[0]), *rest


class OtherSpaces(CartPoleVectorEnv):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.single_action_space = gym.spaces.Discrete(3)


class Unmakeable(CartPoleVectorEnv):
    def __init__(self, **kwargs):
        raise RuntimeError("no vectors today")


@pytest.fixture
def registered():
    """A function that registers CartPole with another vectorised form, and returns its id."""
    names = []

    def register(vector):
        name = f"{vector.__name__}-v0"
        entry = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
        gym.register(name, entry_point=entry, vector_entry_point=vector, max_episode_steps=500)
        names.append(name)
        return name

    yield register
    for name in names:
        del gym.registry[name]


def random_actions(steps, seed=0):
    return np.random.default_rng(seed).integers(2, size=(steps, B)).astype(np.int32)


def results(envs, actions):
    steps = [envs.step(action) for action in actions]
    return [(s.obs, s.reward, s.terminated, s.truncated, s.valid) for s in steps], [s.episodes for s in steps]


def test_many_environments_are_taken_in_their_vectorised_form_and_few_are_not():
    with make("CartPole-v1", B, 0) as many, make("CartPole-v1", B - 1, 0) as few:
        assert type(many) is VectorEnvs
        assert many.exact_resume
        assert type(few) is GymEnvs


def test_settings_reach_the_vectorised_form():
    with make("CartPole-v1", B, 0, max_episode_steps=3, sutton_barto_reward=True) as envs:
        assert type(envs) is VectorEnvs
        envs.reset()
        steps = [envs.step(np.zeros(B, np.int32)) for _ in range(3)]
        assert steps[-1].truncated.all()
        assert [episode.length for episode in steps[-1].episodes] == [3] * B
        assert all(not step.reward.any() for step in steps)


@pytest.mark.parametrize("vector", [HiddenState, OtherSpaces, Unmakeable])
def test_a_form_that_cannot_be_relied_on_is_left_alone(registered, vector):
    with make(registered(vector), B, 0) as envs:
        assert type(envs) is GymEnvs


@pytest.mark.parametrize("steps", [0, 1, 37])
def test_a_state_that_went_through_a_file_goes_on_bit_for_bit(tmp_path, steps):
    actions = random_actions(steps + 60)
    with make("CartPole-v1", B, 0) as envs, make("CartPole-v1", B, 5) as other:
        obs = envs.reset()
        for action in actions[:steps]:
            obs = envs.step(action).obs
        checkpoint.save(tmp_path, "envs", envs.state())
        expected, episodes = results(envs, actions[steps:])
        restored = other.restore(checkpoint.load(tmp_path / "envs")[0])
        assert other.exact_resume
        np.testing.assert_array_equal(restored, obs)
        found, same_episodes = results(other, actions[steps:])
        assert same_episodes == episodes
        assert sum(map(len, episodes)) > 0
        for mine, theirs in zip(found, expected):
            for a, b in zip(mine, theirs):
                np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(other.reset(), envs.reset())


def test_a_state_is_not_touched_by_what_comes_after():
    with make("CartPole-v1", B, 0) as envs:
        envs.reset()
        results(envs, random_actions(12))
        state = envs.state()
        first, _ = results(envs, random_actions(40, 1))
        envs.restore(state)
        again, _ = results(envs, random_actions(40, 1))
        np.testing.assert_array_equal(first[-1][0], again[-1][0])


def test_a_state_of_another_number_of_environments_is_refused():
    with make("CartPole-v1", B, 0) as envs:
        state = envs.state()
    with make("CartPole-v1", B + 1, 0) as more, pytest.raises(CheckpointError, match=r"holds 8 .* and 9 were asked"):
        more.restore(state)


def test_a_snapshot_holds_copies():
    env = CartPoleVectorEnv(num_envs=2)
    env.reset(seed=0)
    saved = snapshot(env)
    env.state[:] = 9
    assert not (saved["state"] == 9).any()
    put_back(env, saved)
    env.state[:] = 9
    assert not (saved["state"] == 9).any()


def test_whether_a_snapshot_is_enough_is_found_out():
    assert can_be_put_back(lambda: CartPoleVectorEnv(num_envs=3), seed=0)
    assert not can_be_put_back(lambda: HiddenState(num_envs=3), seed=0)


def test_checking_an_environment_looks_at_its_vectorised_form_too():
    assert any("vectorised" in finding.what for finding in check("CartPole-v1", steps=200))


def test_an_id_without_a_limit_gets_none_from_its_vectorised_form():
    """gymnasium's vectorised CartPole truncates at 500 unless it is told another number."""
    entry = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
    gym.register("Endless-v0", entry_point=entry, vector_entry_point=CartPoleVectorEnv)
    try:
        with make("Endless-v0", B, 0) as envs, make("Endless-v0", B, 0, max_episode_steps=5) as limited:
            assert type(envs) is GymEnvs
            assert envs._limits == [NEVER] * B
            assert type(limited) is VectorEnvs
            limited.reset()
            assert [limited.step(np.zeros(B, int)).truncated.all() for _ in range(5)] == [False] * 4 + [True]
    finally:
        del gym.registry["Endless-v0"]


def test_a_limit_that_is_taken_off_is_off_in_every_form():
    """gymnasium.make takes max_episode_steps=-1 for no limit; a vectorised form would take it for a limit of -1."""
    with make("CartPole-v1", B, 0, max_episode_steps=-1) as envs:
        assert type(envs) is GymEnvs
        assert envs._limits == [NEVER] * B
