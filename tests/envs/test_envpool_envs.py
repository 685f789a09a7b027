"""EnvPool: Atari's scores and lives, options, and the limits it reports in its own way."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from starling.core.errors import ConfigError, UnknownNameError
from starling.core.spaces import Float, Int
from starling.envs import make

envpool = pytest.importorskip("envpool")


def test_pong_delivers_images_and_is_cut_at_its_limit():
    with make("envpool:Pong-v5", 2, 0, max_episode_steps=20, stack_num=2) as envs:
        assert envs.observation_space == Int((2, 84, 84), 0, 256, "uint8")
        assert envs.action_space == Int((), 0, 6)
        obs = envs.reset()
        assert (obs.shape, obs.dtype) == ((2, 2, 84, 84), np.uint8)
        for t in range(1, 62):
            step = envs.step(np.full(2, t % 6))
            position = (t - 1) % 21 + 1  # 20 steps and the row that delivers the reset observation
            assert step.truncated.tolist() == [position == 20] * 2
            assert step.terminated.tolist() == [False] * 2
            assert step.valid.tolist() == [position != 21] * 2
            assert (step.final_obs is not None) == (position == 20)
            assert [e.length for e in step.episodes] == ([20, 20] if position == 20 else [])


def test_a_lost_life_ends_an_episode_but_the_game_goes_on_and_its_score_is_reported_whole():
    """Breakout with a random policy: 5 lives, so 5 ends for each reported game."""
    options = {"episodic_life": True, "reward_clip": True, "noop_max": 1}
    reference = envpool.make("Breakout-v5", env_type="gymnasium", num_envs=1, seed=0, **options)
    with make("envpool:Breakout-v5", 1, 0, **options) as envs:
        envs._task.pool = reference  # the same object, so that its info can be read beside
        infos = []
        inner = reference.step

        def stepped(action):
            result = inner(action)
            infos.append(result[4])
            return result

        reference.step = stepped
        envs.reset()
        rng = np.random.default_rng(0)
        ends = games = length = 0
        score = 0.0
        for _ in range(1500):
            step = envs.step(rng.integers(0, 4, 1))
            info = infos[-1]
            if not step.valid[0]:
                assert step.reward[0] == 0
                continue
            ends += int(step.terminated[0])
            score += float(info["reward"][0])
            length += 1
            assert bool(step.episodes) == bool(info["terminated"][0])
            if step.episodes:
                games += 1
                assert tuple(step.episodes[0]) == (0, score, length)
                assert info["lives"][0] == 0
                assert ends == 5
                ends = length = 0
                score = 0.0
        assert games >= 3


def test_clipped_rewards_leave_the_reported_score_whole():
    """The same game twice: once clipped, once not."""
    actions = np.random.default_rng(0).integers(0, 6, (400, 1))
    rewards, scores = {}, {}
    for clip in (True, False):
        with make("envpool:SpaceInvaders-v5", 1, 0, reward_clip=clip, max_episode_steps=300) as envs:
            envs.reset()
            steps = [envs.step(action) for action in actions]
        rewards[clip] = np.concatenate([step.reward[step.valid] for step in steps])
        scores[clip] = [tuple(episode) for step in steps for episode in step.episodes]
    np.testing.assert_array_equal(rewards[True], np.sign(rewards[False]))
    assert scores[True] == scores[False]
    assert scores[True][0][1] == rewards[False][: scores[True][0][2]].sum() > rewards[True].sum()


def test_kept_observations_are_never_written_again():
    with make("envpool:Pong-v5", 2, 0) as envs:
        kept = [envs.reset()]
        kept += [envs.step(np.full(2, 2 + t % 2)).obs for t in range(40)]
        copies = [obs.copy() for obs in kept]
        for _ in range(20):
            envs.step(np.zeros(2, np.int32))
        for obs, copy in zip(kept, copies):
            np.testing.assert_array_equal(obs, copy)
        assert any((a != b).any() for a, b in itertools.pairwise(kept))


def test_a_continuous_task_takes_continuous_actions():
    with make("envpool:LunarLanderContinuous-v3", 2, 0) as envs:
        assert envs.action_space == Float((2,), -1.0, 1.0)
        envs.reset()
        assert envs.step(np.zeros((2, 2), np.float32)).obs.shape == (2, 8)


def test_an_unknown_task_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="Did you mean 'envpool:Pong-v5'"):
        make("envpool:Pongg-v5", 1, 0)


def test_options_that_follow_from_count_and_seed_are_refused():
    with pytest.raises(ConfigError, match="num_envs cannot be given"):
        make("envpool:CartPole-v1", 1, 0, num_envs=3)


def test_an_unknown_option_is_refused():
    with pytest.raises(ConfigError, match="envpool:CartPole-v1 cannot be made with"):
        make("envpool:CartPole-v1", 1, 0, colour="red")
