"""VectorEnvs: what it refuses, action masks, and failures."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from starling.core.errors import ConfigError, EnvError
from starling.core.spaces import Bool
from starling.envs import VectorEnvs

from .broken import Good
from .counting import Counting


class Reusing(VectorEnv):
    """Two walkers that share one observation buffer for ever, and can be told to go wrong."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012
    num_envs = 2
    single_observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    single_action_space = gym.spaces.Discrete(2)
    fault = ""

    def reset(self, *, seed=None, options=None):
        self.buffer = np.zeros((2, 1), np.float32)
        return self.buffer, {}

    def step(self, actions):
        self.buffer += 1
        reward, flags, infos = np.ones(2), np.zeros(2, bool), {}
        match self.fault:
            case "nan observation":
                self.buffer[1] = np.nan
            case "nan reward":
                reward[1] = np.nan
            case "column of rewards":
                reward = reward[:, None]
            case "rewards of none":
                reward = [1.0, None]
            case "huge reward":
                reward = [1.0, 10**400]
            case "no rewards":
                reward = None
            case "several rewards":
                reward = [np.ones(3), 1.0]
            case "flags of text":
                flags = np.array(["no", "no"])
            case "flags of none":
                flags = [False, None]
            case "one flag":
                flags = False
            case "infos is none":
                infos = None
            case "four results":
                return self.buffer, reward, flags, infos
            case "nothing returned":
                return None
            case "raises":
                raise ZeroDivisionError("out of fuel")
        return self.buffer, reward, flags, flags, infos


def test_observations_are_copied_from_a_buffer_that_is_reused():
    envs = VectorEnvs(Reusing(), 0, "Reusing")
    seen = [envs.reset(), *(envs.step([0, 0]).obs for _ in range(3))]
    assert [obs[0, 0] for obs in seen] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("nan observation", "1 of 2 numbers are not finite"),
        ("nan reward", "environment 1: the reward nan"),
        ("column of rewards", r"rewards of shape \[2, 1\] arrived, \[2\] expected"),
        ("rewards of none", r"environment 1: the reward None \(NoneType\) arrived"),
        ("huge reward", "environment 1: the reward 1000"),
        ("no rewards", r"rewards of shape \[\] arrived"),
        ("several rewards", "environment 0: the reward array"),
        ("flags of text", r"environment 0: terminated='no' \(str\) arrived"),
        ("flags of none", r"environment 1: terminated=None \(NoneType\) arrived"),
        ("one flag", r"terminations of shape \[\] arrived"),
        ("infos is none", r"info=None \(NoneType\) arrived. info is a dict"),
        ("four results", r"step\(\) returned a tuple of 4. step\(\) returns \(observation, reward,"),
        ("nothing returned", r"step\(\) returned NoneType"),
        ("raises", r"step\(\) raised ZeroDivisionError: out of fuel"),
    ],
)
def test_a_fault_is_told_with_the_name_and_the_step(fault, message):
    env = Reusing()
    envs = VectorEnvs(env, 7, "Reusing")
    envs.reset()
    envs.step([0, 0])
    env.fault = fault
    with pytest.raises(EnvError, match=message) as caught:
        envs.step([0, 0])
    assert "Reusing, 2 environments, step" in str(caught.value)
    assert "under seed 7" in str(caught.value)


def test_flags_that_are_numbers_are_taken():
    class Numbers(Reusing):
        def step(self, actions):
            obs, reward, *_ = super().step(actions)
            return obs, reward, np.array([0, 1]), [0, 0], {}

    envs = VectorEnvs(Numbers(), 0, "Numbers")
    envs.reset()
    step = envs.step([0, 0])
    assert (step.terminated.tolist(), step.truncated.tolist()) == ([False, True], [False, False])


@pytest.mark.parametrize("result", [None, np.zeros((3, 1)), (np.zeros((2, 1)), None)])
def test_a_reset_that_gives_no_pair_is_told(result):
    class Old(Reusing):
        def reset(self, *, seed=None, options=None):
            return result

    with pytest.raises(EnvError, match=r"Old, 2 environments, .*(reset\(\) returned|info=None)"):
        VectorEnvs(Old(), 0, "Old")


@pytest.mark.parametrize("mode", [None, "sometimes"])
def test_a_mode_that_is_not_declared_is_refused(mode):
    env = Reusing()
    env.metadata = {} if mode is None else {"autoreset_mode": mode}
    with pytest.raises(ConfigError, match=r"autoreset_mode'\] is .*AutoresetMode.NEXT_STEP"):
        VectorEnvs(env, 0, "Reusing")


def test_a_mode_declared_by_its_value_is_understood():
    env = Reusing()
    env.metadata = {"autoreset_mode": "SameStep"}
    assert VectorEnvs(env, 0, "Reusing").count == 2


class Masked(Counting):
    """Allows the actions 0 … step."""

    def mask(self):
        return {"action_mask": np.arange(5) <= self.steps}

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0], self.mask()

    def step(self, action):
        return *super().step(action)[:4], self.mask()


@pytest.mark.parametrize("mode", AutoresetMode)
def test_action_masks_follow_their_observations(mode):
    envs = VectorEnvs(SyncVectorEnv([lambda i=i: Masked(i) for i in range(3)], autoreset_mode=mode), 0, "Masked")
    assert envs.observation_space["action_mask"] == Bool((5,))

    def verify(obs):
        expected = np.arange(5) <= obs["observation"][:, 2:3]
        np.testing.assert_array_equal(obs["action_mask"], expected)

    verify(envs.reset())
    ends = 0
    for _ in range(30):
        step = envs.step(np.zeros(3, int))
        verify(step.obs)
        if step.final_obs is not None:
            verify(step.final_obs)
            ends += 1
    assert ends > 5


def test_final_observations_may_come_as_a_tree_of_batches():
    class Batched(SyncVectorEnv):
        def step(self, actions):
            *rest, infos = super().step(actions)
            if "final_obs" in infos:
                rows = [row if row is not None else Counting(9, "dict").reset()[0] for row in infos["final_obs"]]
                infos["final_obs"] = {key: np.array([row[key] for row in rows]) for key in rows[0]}
            return *rest, infos

    env = Batched([lambda i=i: Counting(i, "dict") for i in (1, 0)], autoreset_mode=AutoresetMode.SAME_STEP)
    envs = VectorEnvs(env, 0, "Batched")
    envs.reset()
    envs.step([0, 0])
    step = envs.step([1, 2])
    assert step.final_obs["place"][1].tolist() == [0, 0, 2, 2]
    assert step.obs["place"].tolist() == [[1, 0, 2, 1], [0, 1, 0, -1]]


def test_a_mask_that_stops_coming_is_told():
    class Forgetful(Masked):
        def mask(self):
            return super().mask() if self.index == 0 or self.steps == 0 else {}

    envs = VectorEnvs(SyncVectorEnv([lambda i=i: Forgetful(i) for i in range(2)]), 0, "Forgetful")
    envs.reset()
    with pytest.raises(EnvError, match="no 'action_mask' for some rows"):
        envs.step([0, 0])


def test_a_mask_of_a_continuous_action_is_refused():
    class Confused(Good):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=seed)[0], {"action_mask": np.ones(3)}

    with pytest.raises(EnvError, match="it must be Discrete"):
        VectorEnvs(SyncVectorEnv([Confused]), 0, "Confused")
