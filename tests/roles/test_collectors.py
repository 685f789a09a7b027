"""What collectors hand on: truncation, termination, rows that are no transitions."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from starling.algorithms import A2C, DQN
from starling.algorithms.base import inputs_of
from starling.backends import get_backend
from starling.components.graph.assembly import assemble
from starling.components.graph.build import build
from starling.data import MinSize, Table, transition_signature
from starling.envs import make
from starling.roles.collectors import RolloutCollector, TransitionCollector
from starling.roles.policy import Policy
from tests.experiments.toys import Cut, Over

GAMMA = 0.5


def rollouts(env, length, count=1, seed=0):
    envs = make(env, count, seed)
    config = A2C.Config(envs=count, rollout=length, gamma=GAMMA, hidden=(4,))
    algorithm = A2C.compose(config, envs.observation_space, envs.action_space, count, 1_000)
    graph = build(assemble(algorithm, inputs_of(algorithm)), get_backend("numpy"), seed=1)
    return RolloutCollector(Policy(graph), envs, seed)


def transitions(env, count=1, n_step=1, seed=0):
    envs = make(env, count, seed)
    config = DQN.Config(envs=count, gamma=GAMMA, hidden=(4,), batch_size=4, n_step=n_step)
    algorithm = DQN.compose(config, envs.observation_space, envs.action_space, count, 1_000)
    graph = build(assemble(algorithm, inputs_of(algorithm)), get_backend("numpy"), seed=1)
    signature = transition_signature(envs.observation_space, envs.action_space)
    table = Table(signature, 1_000, limiter=MinSize(1), seed=0)
    return TransitionCollector(Policy(graph), envs, seed, table), table


def test_the_reward_at_a_cut_includes_the_value_of_the_final_observation():
    collector = rollouts(Cut, 12)
    batch = collector.collect()
    value = float(collector.policy.values(np.ones((1, 2), np.float32))[0])
    assert value != 0
    expected = np.ones(12, np.float32)
    expected[[4, 9]] += GAMMA * value
    np.testing.assert_allclose(batch["reward"][:, 0], expected, rtol=1e-6)
    discount = np.full(12, GAMMA, np.float32)
    discount[[4, 9]] = 0
    np.testing.assert_array_equal(batch["discount"][:, 0], discount)
    assert batch["mask"].all()
    assert collector.steps == 12
    assert [(episode.ret, episode.length) for episode in collector.take_episodes()] == [(5.0, 5), (5.0, 5)]
    assert collector.take_episodes() == []


def test_the_reward_at_a_termination_stands_alone():
    batch = rollouts(Over, 12).collect()
    np.testing.assert_array_equal(batch["reward"], np.ones((12, 1)))
    assert np.flatnonzero(batch["discount"][:, 0] == 0).tolist() == [4, 9]


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
    batch = collector.collect()
    value = float(collector.policy.values(np.ones((1, 2), np.float32))[0])
    np.testing.assert_allclose(batch["reward"][4], [1 + GAMMA * value, 1, 1], rtol=1e-6)
    np.testing.assert_array_equal(batch["discount"][4], [0, 0, 0])


def test_the_final_observation_counts_and_not_the_one_after_the_reset():
    class Far(Cut):
        def observe(self):
            return np.full(2, self.t, np.float32)

    collector = rollouts(Far, 5)
    batch = collector.collect()
    value = float(collector.policy.values(np.full((1, 2), 5, np.float32))[0])
    np.testing.assert_allclose(batch["reward"][4, 0], 1 + GAMMA * value, rtol=1e-5)
    np.testing.assert_array_equal(batch["next_obs"], [[0, 0]])


def test_rows_that_only_deliver_a_reset_are_masked():
    """Gymnasium's NEXT_STEP: the step after an end ignores its action and returns the reset observation."""
    envs = gym.vector.SyncVectorEnv([Cut, Cut], autoreset_mode=gym.vector.AutoresetMode.NEXT_STEP)
    collector = rollouts(envs, 12, count=2)
    batch = collector.collect()
    value = float(collector.policy.values(np.ones((1, 2), np.float32))[0])
    assert np.flatnonzero(batch["mask"][:, 0] == 0).tolist() == [5, 11]
    assert (batch["discount"][[4, 5, 10, 11]] == 0).all()
    np.testing.assert_allclose(batch["reward"][[4, 10]], 1 + GAMMA * value, rtol=1e-6)
    assert collector.steps == 20


def test_masked_rows_never_become_transitions():
    envs = gym.vector.SyncVectorEnv([Cut], autoreset_mode=gym.vector.AutoresetMode.NEXT_STEP)
    collector, table = transitions(envs)
    for _ in range(12):
        collector.collect()
    assert collector.steps == len(table) == 10


@pytest.mark.parametrize(("env", "discount"), [(Cut, GAMMA), (Over, 0.0)])
def test_a_transition_keeps_its_discount_at_a_cut_and_loses_it_at_an_end(env, discount):
    collector, table = transitions(env)
    for _ in range(5):
        collector.collect()
    batch = table.sample(200).data
    assert len(table) == 5
    assert set(np.unique(batch["discount"])) == {np.float32(GAMMA), np.float32(discount)}
    np.testing.assert_array_equal(batch["reward"], np.ones(200))


def test_n_step_returns_stop_at_the_end_of_an_episode():
    collector, table = transitions(Over, n_step=3)
    for _ in range(20):
        collector.collect()
    batch = table.sample(500).data
    # three steps of 1: 1 + ½ + ¼; then two and one at the end, with nothing after
    assert {(float(r), float(d)) for r, d in zip(batch["reward"], batch["discount"])} == {
        (1.75, GAMMA**3), (1.75, 0.0), (1.5, 0.0), (1.0, 0.0)
    }  # fmt: skip


def test_a_restored_collector_goes_on_with_the_same_experience():
    one, other = rollouts("CartPole-v1", 16, count=2), rollouts("CartPole-v1", 16, count=2)
    one.collect()
    other.restore(one.state())
    first, second = one.collect(), other.collect()
    for key in first:
        np.testing.assert_array_equal(first[key], second[key], err_msg=key)
    assert one.steps == other.steps == 64


def test_the_state_can_be_taken_before_the_first_step():
    one, other = rollouts("CartPole-v1", 4), rollouts("CartPole-v1", 4, seed=3)
    other.restore(one.state())
    np.testing.assert_array_equal(one.collect()["obs"], other.collect()["obs"])
