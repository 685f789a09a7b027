"""Rollouts: what a chunk holds of truncation, termination and rows that are no steps."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from starling.algorithms.actor_critic import first_steps, rewards_and_discounts
from starling.core.errors import ConfigError
from starling.experience.rollouts import Rollouts
from tests.experience.acting import collect, collector_for, values
from tests.experiments.toys import Cut, Over

GAMMA = 0.5


def rollouts(env, length, count=1, **settings):
    return collector_for("a2c", env, count, rollout=length, gamma=GAMMA, **settings)


def test_the_reward_is_what_the_environment_gave_and_a_cut_is_bootstrapped_apart():
    collector = rollouts(Cut, 12)
    chunk = collect(collector)
    data, value = chunk["data"], float(values(collector, np.ones((1, 2), np.float32))[0])
    assert value != 0
    np.testing.assert_array_equal(data["reward"], np.ones((12, 1)))
    assert np.flatnonzero(data["truncated"]).tolist() == [4, 9]
    assert not data["terminated"].any()
    expected = np.zeros(12, np.float32)
    expected[[4, 9]] = value
    np.testing.assert_allclose(data["bootstrap"][:, 0], expected, rtol=1e-6)
    assert data["mask"].all()
    about = chunk["about"]
    assert (about["steps"], about["episodes"]) == (12, 2)
    assert about["returns"][:2].tolist() == about["lengths"][:2].tolist() == [5.0, 5.0]
    assert collect(collector)["about"]["episodes"] == 2  # 12 steps more end at 15 and 20


def test_a_termination_stands_alone_beside_a_cut_and_when_both_come_at_once():
    kinds = iter([(False, True), (True, False), (True, True)])

    class Mixed(Cut):
        def __init__(self):
            super().__init__()
            self.flags = next(kinds)

        def step(self, action):
            obs, reward, _, over, info = super().step(action)
            return obs, reward, over and self.flags[0], over and self.flags[1], info

    collector = rollouts(Mixed, 5, count=3)
    data = collect(collector)["data"]
    value = float(values(collector, np.ones((1, 2), np.float32))[0])
    np.testing.assert_allclose(data["bootstrap"][4], [value, 0, 0], rtol=1e-6)
    reward, discount = rewards_and_discounts(data, data["reward"], GAMMA)
    np.testing.assert_allclose(reward[4], [1 + GAMMA * value, 1, 1], rtol=1e-6)
    np.testing.assert_array_equal(discount[3:], [[GAMMA] * 3, [0, 0, 0]])


def test_the_final_observation_counts_and_not_the_one_after_the_reset():
    class Far(Cut):
        def observe(self):
            return np.full(2, self.t, np.float32)

    collector = rollouts(Far, 5)
    data = collect(collector)["data"]
    value = float(values(collector, np.full((1, 2), 5, np.float32))[0])
    np.testing.assert_allclose(data["bootstrap"][4, 0], value, rtol=1e-5)
    np.testing.assert_array_equal(data["next_obs"], [[0, 0]])


def test_rows_that_only_deliver_a_reset_are_masked():
    """Gymnasium's NEXT_STEP: the step after an end ignores its action and returns the reset observation."""
    envs = gym.vector.SyncVectorEnv([Cut, Cut], autoreset_mode=gym.vector.AutoresetMode.NEXT_STEP)
    collector = rollouts(envs, 12, count=2)
    chunk = collect(collector)
    data = chunk["data"]
    assert np.flatnonzero(data["mask"][:, 0] == 0).tolist() == [5, 11]
    _, discount = rewards_and_discounts(data, data["reward"], GAMMA)
    assert (discount[[4, 5, 10, 11]] == 0).all()
    assert chunk["about"]["steps"] == collector.steps == 20


def test_memory_is_stored_before_the_first_step_and_forgotten_at_every_end():
    collector = rollouts(Over, 7, memory="lstm", memory_size=3)
    first, second = collect(collector)["data"], collect(collector)["data"]
    assert not first["memory"]["h"].any()
    assert second["memory"]["h"].any()  # two steps into an episode
    begins = first_steps(first)
    assert np.flatnonzero(begins[:, 0]).tolist() == [5]  # the sixth step follows an end
    algorithm, p = collector.algorithm, collector.acting.policy.weights
    policy, _ = algorithm.along(p, second)
    np.testing.assert_allclose(policy.log_prob(second["action"]), second["log_prob"], atol=1e-5)


def test_the_discounted_return_so_far_begins_anew_with_each_episode():
    data = collect(rollouts(Over, 7, normalise_rewards=True))["data"]
    np.testing.assert_allclose(data["discounted_return"][:, 0], [1, 1.5, 1.75, 1.875, 1.9375, 1, 1.5])


def test_chunks_lie_side_by_side_in_a_batch():
    one, other = collect(rollouts(Cut, 4))["data"], collect(rollouts(Over, 4))["data"]
    plan = Rollouts(envs=2, length=4)
    feed = plan.feed(None, 2, 0)
    feed.add([one, other])
    (batch,) = feed.batches(None)
    assert batch.data["obs"].shape == (4, 2, 2)
    assert batch.data["next_obs"].shape == (2, 2)
    np.testing.assert_array_equal(batch.data["action"][:, 1], other["action"][:, 0])


def test_environments_that_cannot_be_shared_are_refused_with_a_number_that_can():
    with pytest.raises(ConfigError, match=r"envs=6 cannot be shared equally by the 4 chunks of a batch; .* 8"):
        Rollouts(envs=6, length=4).envs_per_actor(4)
    with pytest.raises(ConfigError, match=r"envs=3 cannot be shared equally by 2 learners; .* 4"):
        Rollouts(envs=3, length=4).shared(2)


def test_a_restored_collector_goes_on_with_the_same_experience():
    one, other = (rollouts("CartPole-v1", 16, count=2) for _ in range(2))
    collect(one)
    other.restore(one.state())
    first, second = collect(one), collect(other)
    for key in first["data"]:
        np.testing.assert_array_equal(first["data"][key], second["data"][key], err_msg=key)
    assert one.steps == other.steps == 64
    assert first["about"]["sequence"] == second["about"]["sequence"] == 1


def test_the_state_can_be_taken_before_the_first_step():
    one, other = rollouts("CartPole-v1", 4), rollouts("CartPole-v1", 4)
    other.restore(one.state())
    np.testing.assert_array_equal(collect(one)["data"]["obs"], collect(other)["data"]["obs"])
