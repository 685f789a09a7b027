"""GymEnvs: time limits, failures, action masks, and resuming."""

from __future__ import annotations

import itertools

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeAwareObservation, TimeLimit

from starling.core.errors import CheckpointError, EnvError, SpaceError
from starling.core.spaces import Bool, Dict, Int
from starling.core.trees import leaves
from starling.envs import GymEnvs, is_deterministic, make
from starling.envs.stripping import strip_bookkeeping

from .broken import Good
from .counting import Counting

FAULTS = {
    "nan observation": "1 of 2 numbers are not finite",
    "infinite observation": "1 of 2 numbers are not finite",
    "float64 observation": "dtype float64 arrived, float32 was expected",
    "integer observation": "dtype int64 arrived, float32 was expected",
    "wrong shape": r"shape \[3\] arrived, \[2\] was expected",
    "scalar observation": r"shape \[\] arrived, \[2\] was expected",
    "text observation": "arrived, float32 was expected",
    "nan reward": r"the reward nan \(float\) arrived. A reward is one finite number",
    "infinite reward": "the reward -inf",
    "reward is none": "NoneType",
    "reward is a list": r"the reward \[1.0\] \(list\) arrived",
    "reward is text": "str",
    "four results": "a tuple of 4",
    "step raises": "raised ZeroDivisionError: the wheel came off",
}


def faulty(fault: str, which: int = 1) -> GymEnvs:
    """Three environments, of which ``which`` goes wrong at step 3."""
    index = itertools.count()
    return GymEnvs(lambda: Good(fault if next(index) == which else ""), 3, 0, "Good")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_told_with_environment_seed_and_step(fault):
    envs = faulty(fault)
    envs.reset()
    for _ in range(2):
        envs.step(np.zeros((3, 1), np.float32))
    seed = envs.state()["envs"][1]["seed"]
    with pytest.raises(EnvError, match=FAULTS[fault]) as caught:
        envs.step(np.zeros((3, 1), np.float32))
    assert f"Good, environment 1, episode seed {seed}, step 3 of the episode" in str(caught.value)
    assert (caught.value.__cause__ is not None) == (fault == "step raises")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("reset raises", "raised RuntimeError: no ground to stand on"),
        ("reset without info", r"returned ndarray. reset\(\) returns \(observation, info\)"),
        ("nan at reset", "2 of 2 numbers are not finite"),
    ],
)
def test_a_fault_in_reset_is_told_with_its_environment(fault, message):
    with pytest.raises(EnvError, match=message) as caught:
        faulty(fault)
    assert "environment 1, episode seed" in str(caught.value)


def test_the_users_traceback_is_kept():
    envs = faulty("step raises")
    envs.reset()
    still = np.zeros((3, 1), np.float32)
    envs.step(still)
    envs.step(still)
    with pytest.raises(EnvError) as caught:
        envs.step(still)
    traceback = caught.value.__cause__.__traceback__
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    assert traceback.tb_frame.f_code.co_name == "go_wrong"


def test_a_policy_that_sends_nan_is_named_first():
    envs = faulty("")
    envs.reset()
    with pytest.raises(EnvError, match="look at the policy first"):
        envs.step(np.full((3, 1), np.nan, np.float32))


def test_very_large_finite_numbers_pass():
    class Large(Good):
        def observe(self):
            return np.full(2, 3e38, np.float32)

    with pytest.warns(UserWarning, match="Large: the observation, number"):
        envs = GymEnvs(Large, 2, 0, "Large")
    assert (envs.reset() == np.float32(3e38)).all()
    assert np.isfinite(envs.step(np.zeros((2, 1), np.float32)).obs).all()


def test_an_environment_that_scribbles_on_its_action_does_not_reach_the_caller():
    class Scribbler(Good):
        def step(self, action):
            action *= 0
            return super().step(action)

    envs = GymEnvs(Scribbler, 2, 0, "Scribbler")
    envs.reset()
    action = np.ones((2, 1), np.float32)
    envs.step(action)
    assert action.tolist() == [[1.0], [1.0]]


def test_reused_observation_buffers_are_copied_at_once():
    envs = GymEnvs(lambda: Good("buffer reused"), 2, 0, "Good")
    first = envs.reset()
    copy = first.copy()
    envs.step(np.ones((2, 1), np.float32))
    np.testing.assert_array_equal(first, copy)


@pytest.mark.parametrize("reward", [3, np.int64(3), np.float32(3), np.array(3.0), True])
def test_any_scalar_reward_becomes_float32(reward):
    class Paying(Good):
        def step(self, action):
            obs, _, terminated, truncated, info = super().step(action)
            return obs, reward, terminated, truncated, info

    envs = GymEnvs(Paying, 2, 0, "Paying")
    envs.reset()
    arrived = envs.step(np.zeros((2, 1), np.float32)).reward
    assert arrived.dtype == np.float32
    assert arrived.tolist() == [float(reward)] * 2


def test_environments_with_different_spaces_are_refused():
    limits = iter([1.0, 2.0])

    def construct():
        env = Good()
        env.action_space = gym.spaces.Box(-next(limits), 1, (1,), np.float32)
        return env

    with pytest.raises(SpaceError, match="action_space of environment 1"):
        GymEnvs(construct, 2, 0, "Good")


@pytest.mark.parametrize(
    "name", ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCarContinuous-v0", "FrozenLake-v1"]
)
def test_stepping_inside_the_bookkeeping_wrappers_changes_nothing(name):
    """Against gymnasium.make with all its wrappers, from the same seeds and actions."""
    envs = make(name, 1, 7, max_episode_steps=40)
    reference = gym.make(name, max_episode_steps=40)
    sample = envs.action_space.ranked(batch=True)
    rng = np.random.default_rng(0)
    obs = envs.reset()
    expected, _ = reference.reset(seed=envs.state()["envs"][0]["seed"])
    np.testing.assert_array_equal(obs[0], expected)
    ends = 0
    for _ in range(300):
        action = sample.sample(rng, (1,))
        step = envs.step(action)
        expected, reward, terminated, truncated, _ = reference.step(
            int(action[0]) if isinstance(envs.action_space, Int) else action[0].copy()
        )
        assert (step.terminated[0], step.truncated[0]) == (terminated, truncated)
        assert step.reward[0] == np.float32(reward)
        after = step.obs if step.final_obs is None else step.final_obs
        np.testing.assert_array_equal(after[0], expected)
        if terminated or truncated:
            ends += 1
            expected, _ = reference.reset(seed=envs.state()["envs"][0]["seed"])
            np.testing.assert_array_equal(step.obs[0], expected)
    assert ends >= 7


def test_only_the_outer_bookkeeping_wrappers_come_off():
    inner = Good()
    assert strip_bookkeeping(inner) == (inner, None)
    assert strip_bookkeeping(TimeLimit(OrderEnforcing(PassiveEnvChecker(inner)), 9)) == (inner, 9)
    assert strip_bookkeeping(TimeLimit(TimeLimit(inner, 5), 9)) == (inner, 5)
    assert strip_bookkeeping(TimeLimit(TimeLimit(inner, 9), 5)) == (inner, 5)
    changing = TimeAwareObservation(TimeLimit(inner, 5))
    assert strip_bookkeeping(TimeLimit(changing, 9)) == (changing, 9)

    class Stricter(TimeLimit):
        pass

    stricter = Stricter(inner, 5)
    assert strip_bookkeeping(stricter) == (stricter, None)


def test_termination_in_the_very_step_of_the_limit_is_both():
    envs = make(Counting, 1, 0, max_episode_steps=2)
    envs.reset()
    envs.step([0])
    step = envs.step([0])
    assert (step.terminated[0], step.truncated[0]) == (True, True)
    assert step.episodes[0].length == 2


class Masked(Counting):
    """Allows the actions 0 … step."""

    mask_until = 100

    def mask(self):
        return {"action_mask": np.arange(5) <= self.steps} if self.steps < self.mask_until else {}

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0], self.mask()

    def step(self, action):
        return *super().step(action)[:4], self.mask()


def test_action_masks_from_info_join_the_observation():
    envs = GymEnvs(Masked, 2, 0, "Masked")
    assert envs.observation_space == Dict(observation=envs.observation_space["observation"], action_mask=Bool((5,)))
    obs = envs.reset()
    assert obs["action_mask"].tolist() == [[True, False, False, False, False]] * 2
    step = envs.step([0, 0])
    assert step.obs["action_mask"].tolist() == [[True, True, False, False, False]] * 2
    step = envs.step([0, 0])
    assert step.final_obs["action_mask"].tolist() == [[True, True, True, False, False]] * 2
    assert step.obs["action_mask"].tolist() == [[True, False, False, False, False]] * 2
    assert step.obs["observation"][:, 1].tolist() == [1, 1]


def test_a_mask_that_stops_coming_is_told():
    class Forgetful(Masked):
        mask_until = 1

    envs = GymEnvs(Forgetful, 2, 0, "Forgetful")
    envs.reset()
    with pytest.raises(EnvError, match="'action_mask' is missing"):
        envs.step([0, 0])


def test_a_mask_of_a_continuous_action_is_refused():
    class Confused(Good):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=seed)[0], {"action_mask": np.ones(3)}

    with pytest.raises(EnvError, match="it must be Discrete"):
        GymEnvs(Confused, 1, 0, "Confused")


def test_a_mask_inside_a_dict_observation_passes_as_bool():
    class Inside(Good):
        def __init__(self):
            super().__init__()
            mask = gym.spaces.Box(0, 1, (3,), np.int8)
            self.observation_space = gym.spaces.Dict({"place": self.observation_space, "action_mask": mask})
            self.action_space = gym.spaces.Discrete(3)

        def observe(self):
            return {"place": self.state.copy(), "action_mask": np.array([1, 0, 1], np.int8)}

    envs = GymEnvs(Inside, 2, 0, "Inside")
    assert envs.observation_space["action_mask"] == Bool((3,))
    assert envs.reset()["action_mask"].tolist() == [[True, False, True]] * 2


def collect(envs, actions):
    return [
        leaves([s.obs, s.reward, s.terminated, s.truncated, s.final_obs, [list(e) for e in s.episodes]])
        for s in map(envs.step, actions)
    ]


@pytest.mark.parametrize(
    "name", ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCarContinuous-v0", "FrozenLake-v1", "Blackjack-v1"]
)
def test_a_restored_run_continues_bit_for_bit(name):
    rng = np.random.default_rng(0)
    with make(name, 4, 0, max_episode_steps=150) as envs, make(name, 4, 99, max_episode_steps=150) as other:
        sample = envs.action_space.ranked(batch=True)
        envs.reset()
        for _ in range(217):
            obs = envs.step(sample.sample(rng, (4,))).obs
        state = envs.state()
        future = [sample.sample(rng, (4,)) for _ in range(200)]
        expected = collect(envs, future)
        restored = other.restore(state)
        assert other.exact_resume
        for a, b in zip(leaves(restored), leaves(obs)):
            np.testing.assert_array_equal(a, b)
        for left, right in zip(expected, collect(other, future), strict=True):
            for a, b in zip(left, right, strict=True):
                np.testing.assert_array_equal(a, b)


def test_a_state_taken_before_any_step_restores():
    with make("CartPole-v1", 2, 0) as envs, make("CartPole-v1", 2, 5) as other:
        state = envs.state()
        np.testing.assert_array_equal(other.restore(state), envs.reset())
        assert other.exact_resume


def test_a_restored_run_can_be_saved_and_restored_again():
    rng = np.random.default_rng(0)
    with make("Pendulum-v1", 2, 0) as envs, make("Pendulum-v1", 2, 1) as second, make("Pendulum-v1", 2, 2) as third:
        envs.reset()
        for _ in range(50):
            envs.step(rng.uniform(-2, 2, (2, 1)))
        second.restore(envs.state())
        actions = rng.uniform(-2, 2, (20, 2, 1))
        for action in actions:
            envs.step(action)
            second.step(action)
        third.restore(second.state())
        assert third.exact_resume
        np.testing.assert_array_equal(third.step(actions[0]).obs, envs.step(actions[0]).obs)


def test_masks_survive_a_restore():
    class Repeatable(Masked):
        def reset(self, *, seed=None, options=None):
            self.episode = -1
            return super().reset(seed=seed)

    with GymEnvs(Repeatable, 2, 0, "R") as envs, GymEnvs(Repeatable, 2, 1, "R") as other:
        envs.reset()
        obs = envs.step([1, 2]).obs
        restored = other.restore(envs.state())
        assert other.exact_resume
        np.testing.assert_array_equal(restored["action_mask"], obs["action_mask"])


def test_an_environment_that_does_not_repeat_itself_is_noticed_and_begins_anew():
    with GymEnvs(lambda: Good("not deterministic"), 2, 0, "Good") as envs:
        envs.reset()
        for _ in range(3):
            envs.step(np.zeros((2, 1), np.float32))
        state = envs.state()
    with GymEnvs(lambda: Good("not deterministic"), 2, 0, "Good") as other:
        obs = other.restore(state)
        assert not other.exact_resume
        assert obs.shape == (2, 2)
        assert [s["length"] for s in other.state()["envs"]] == [0, 0]
        assert not other.step(np.zeros((2, 1), np.float32)).episodes


def test_only_the_environment_that_differs_begins_anew():
    index = itertools.count()
    envs = GymEnvs(lambda: Good("not deterministic" if next(index) == 1 else ""), 2, 0, "Good")
    envs.reset()
    for _ in range(3):
        envs.step(np.zeros((2, 1), np.float32))
    obs = envs.step(np.zeros((2, 1), np.float32)).obs
    envs._obs[1] += 1  # what the second environment showed then, it will not show again
    state = envs.state()
    restored = envs.restore(state)
    assert not envs.exact_resume
    np.testing.assert_array_equal(restored[0], obs[0])
    assert [s["length"] for s in envs.state()["envs"]] == [4, 0]


def test_a_state_of_another_count_is_refused():
    state = make("CartPole-v1", 2, 0).state()
    other = make("CartPole-v1", 3, 0)
    with pytest.raises(CheckpointError, match="holds 2 environments and 3 were asked for"):
        other.restore(state)


def test_probing_tells_repeatable_from_unrepeatable_environments():
    assert is_deterministic(Good, 0, 100)
    assert is_deterministic(lambda: gym.make("CartPole-v1"), 0, 100)
    assert not is_deterministic(lambda: Good("not deterministic"), 0, 100)


def test_a_reward_too_large_to_carry_is_refused():
    class Lavish(Good):
        def step(self, action):
            return super().step(action)[0], 1e300, False, False, {}

    envs = GymEnvs(Lavish, 1, 0, "Lavish")
    envs.reset()
    with pytest.warns(RuntimeWarning, match="overflow"), pytest.raises(EnvError, match=r"the reward 1e\+300 .*arrived"):
        envs.step(np.zeros((1, 1), np.float32))


def test_each_environment_has_a_time_limit_of_its_own():
    limits = iter([4, 2, None])

    def construct():
        limit = next(limits)
        return Good("never ends") if limit is None else TimeLimit(Good("never ends"), limit)

    envs = GymEnvs(construct, 3, 0, "Good")
    envs.reset()
    cut = [envs.step(np.zeros((3, 1), np.float32)).truncated.tolist() for _ in range(6)]
    first, second = [row[0] for row in cut], [row[1] for row in cut]
    assert first == [False, False, False, True, False, False]
    assert second == [False, True, False, True, False, True]
    assert not any(row[2] for row in cut)
