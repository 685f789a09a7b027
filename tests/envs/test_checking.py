"""check: what it says of good environments, and of one broken in each way."""

from __future__ import annotations

import functools

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from starling.envs import check

from .broken import Good, Unseeded
from .counting import Counting

FAULTS = {
    "nan observation": ("error", "observation", "not finite"),
    "infinite observation": ("error", "observation", "not finite"),
    "nan at reset": ("error", "observation", "reset()"),
    "float64 observation": ("error", "observation", "float64 arrived, float32 was expected"),
    "wrong shape": ("error", "observation", "[3] arrived, [2] was expected"),
    "text observation": ("error", "observation", "float32 was expected"),
    "out of bounds": ("warning", "bounds", "101"),
    "nan reward": ("error", "reward", "the reward nan (float) arrived at step 3"),
    "infinite reward": ("error", "reward", "the reward -inf (float) arrived at step 3"),
    "reward is none": ("error", "reward", "NoneType"),
    "reward is a list": ("error", "reward", "list"),
    "reward is text": ("error", "reward", "str"),
    "info is a list": ("error", "info", "list"),
    "four results": ("error", "results", "a tuple of 4"),
    "reset without info": ("error", "results", "ndarray"),
    "step raises": ("error", "exceptions", "ZeroDivisionError: the wheel came off"),
    "reset raises": ("error", "exceptions", "no ground to stand on"),
    "flags are numbers": ("warning", "end flags", "int"),
    "never ends": ("warning", "ends", "no episode ended"),
    "limit as termination": ("warning", "ends", "after exactly 10 steps"),
    "buffer reused": ("warning", "buffers", "overwritten"),
    "not deterministic": ("warning", "determinism", "in one run"),
}


def serious(findings):
    return [finding for finding in findings if finding.level != "ok"]


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found_alone_and_explained(fault):
    level, what, found = FAULTS[fault]
    findings = serious(check(functools.partial(Good, fault), steps=300))
    assert [(finding.level, finding.what) for finding in findings] == [(level, what)]
    assert found in findings[0].found
    assert findings[0].rule
    assert findings[0].remedy


def test_a_good_environment_has_nothing_but_ok():
    findings = check(Good)
    assert serious(findings) == []
    assert {"seeding", "observation", "reward", "info", "buffers", "determinism", "ends"} <= {f.what for f in findings}


@pytest.mark.parametrize("name", ["CartPole-v1", "Acrobot-v1", "FrozenLake-v1", "Blackjack-v1"])
def test_gymnasiums_own_environments_pass(name):
    assert serious(check(name, steps=600)) == []


def test_a_reset_without_a_seed_is_an_error():
    (finding,) = serious(check(Unseeded))
    assert (finding.level, finding.what) == ("error", "seeding")
    assert "super().reset(seed=seed)" in finding.remedy


def test_an_unbounded_and_an_unnormalised_action_space_are_warnings():
    (finding,) = serious(check("Pendulum-v1", steps=300))
    assert (finding.level, finding.what) == ("warning", "action bounds")
    assert "-2 and 2" in finding.found

    class Unbounded(Good):
        def __init__(self):
            super().__init__()
            self.action_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)

    assert ("warning", "action bounds") in [(f.level, f.what) for f in check(Unbounded, steps=50)]


def test_an_unsupported_space_is_an_error():
    class Talking(Good):
        def __init__(self):
            super().__init__()
            self.observation_space = gym.spaces.Text(3)

    (finding,) = serious(check(Talking))
    assert (finding.level, finding.what) == ("error", "observation_space")
    assert "Text" in finding.found


def test_a_name_that_does_not_exist_is_a_finding():
    (finding,) = check("CartPol-v1")
    assert finding.level == "error"
    assert "CartPole-v1" in finding.found


@pytest.mark.parametrize("mode", AutoresetMode)
def test_vector_environments_pass_in_every_mode(mode):
    findings = check(functools.partial(gym.make_vec, "CartPole-v1", 2, "sync", {"autoreset_mode": mode}), steps=300)
    assert serious(findings) == []
    assert mode.name in [f.found for f in findings if f.what == "autoreset"]


def counting_vector() -> SyncVectorEnv:
    return SyncVectorEnv([functools.partial(Counting, i) for i in range(2)], autoreset_mode=AutoresetMode.SAME_STEP)


def test_a_vector_environment_without_a_mode_is_an_error():
    env = counting_vector()
    del env.metadata["autoreset_mode"]
    (finding,) = serious(check(env))
    assert (finding.level, finding.what) == ("error", "autoreset")
    assert "AutoresetMode.NEXT_STEP" in finding.remedy


def test_a_vector_environment_that_declares_the_wrong_mode_is_an_error():
    env = counting_vector()
    env.metadata["autoreset_mode"] = AutoresetMode.NEXT_STEP
    (finding,) = serious(check(env))
    assert (finding.level, finding.what) == ("error", "autoreset")
    assert "the row after an end carries a reward" in finding.found

    env = SyncVectorEnv([Counting] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    env.metadata["autoreset_mode"] = AutoresetMode.SAME_STEP
    (finding,) = serious(check(env))
    assert "has no 'final_obs', which SAME_STEP promises" in finding.found


def test_a_vector_environment_that_does_not_repeat_itself_is_a_warning():
    env = SyncVectorEnv([functools.partial(Good, "not deterministic")] * 2)
    (finding,) = serious(check(env, steps=300))
    assert (finding.level, finding.what) == ("warning", "determinism")


def test_leaving_the_bounds_is_found_in_a_vector_environment_too():
    env = SyncVectorEnv([functools.partial(Good, "out of bounds")] * 2)
    (finding,) = serious(check(env, steps=300))
    assert (finding.level, finding.what) == ("warning", "bounds")
    assert "is 101, and the bounds are -100 and 100" in finding.found


def test_an_environment_of_which_only_one_can_be_is_an_error():
    made = []

    def construct():
        made.append(Good())
        if len(made) > 1:
            raise OSError("the port is taken")
        return made[0]

    (finding,) = serious(check(construct))
    assert (finding.level, finding.what) == ("error", "exceptions")
    assert "another one raised EnvError" in finding.found
    assert "the port is taken" in finding.found


def test_errors_come_first():
    levels = [f.level for f in check(functools.partial(Good, "nan reward"))]
    assert levels == sorted(levels, key=["error", "warning", "ok"].index)
