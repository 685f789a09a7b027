"""Environments that crash or hang alone."""

from __future__ import annotations

import time

import gymnasium as gym
import numpy as np
import pytest

from starling.core.errors import EnvError
from starling.envs import make
from starling.envs.tolerant import RepeatedCrashes, StepTimeout, Tolerance
from tests.experiments.toys import Toy


class Moody(Toy):
    """Crashes, or hangs, at its fourth step, so many times over all."""

    left = 0
    hangs = False

    def step(self, action):
        if self.t == 3 and Moody.left:
            Moody.left -= 1
            if Moody.hangs:
                time.sleep(30)
            raise ZeroDivisionError("the wheel came off")
        return super().step(action)


@pytest.fixture
def moody():
    def prepared(left, hangs=False):
        Moody.left, Moody.hangs = left, hangs
        return Moody

    yield prepared
    Moody.left = 0


def walk(envs, steps):
    envs.reset()
    return [envs.step(np.zeros(envs.count, np.int64)) for _ in range(steps)]


def test_a_crash_cuts_the_episode_short_and_the_others_go_on(moody, capsys):
    steps = walk(make(moody(1), 2, 0, tolerance=Tolerance()), 12)
    cut = steps[3]
    assert cut.truncated.tolist() == [True, False]
    assert cut.terminated.tolist() == [False, False]
    assert cut.final_obs[0, 0] == 3  # where it was last seen
    assert cut.obs[:, 0].tolist() == [0, 4]
    assert [episode.length for step in steps for episode in step.episodes] == [4, 10]
    assert "step() raised ZeroDivisionError: the wheel came off; made anew" in capsys.readouterr().err


def test_a_step_that_hangs_is_interrupted(moody):
    begun = time.monotonic()
    steps = walk(make(moody(1, hangs=True), 2, 0, tolerance=Tolerance(timeout=0.2)), 6)
    assert time.monotonic() - begun < 5
    assert steps[3].truncated.tolist() == [True, False]


def test_the_fifth_crash_within_a_minute_ends_it_and_names_environment_seed_and_step(moody):
    envs = make(moody(5), 1, 0, tolerance=Tolerance())
    with pytest.raises(EnvError, match=r"Moody, environment 0, episode seed \d+, step 4 .*wheel came off.*5 times"):
        walk(envs, 40)
    envs = make(moody(4), 1, 0, tolerance=Tolerance())
    assert len(walk(envs, 40)) == 40


def test_without_tolerance_the_first_crash_ends_it(moody):
    with pytest.raises(EnvError, match="wheel came off"):
        walk(make(moody(1), 1, 0), 5)


def test_crashes_that_lie_far_apart_are_forgotten(monkeypatch):
    tolerance, now = Tolerance(most=2, within=60), [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    tolerance.crashed(StepTimeout("slow"))
    now[0] = 61.0
    tolerance.crashed(StepTimeout("slow"))
    now[0] = 62.0
    with pytest.raises(RepeatedCrashes, match=r"slow .*2 times within 60 s"):
        tolerance.crashed(StepTimeout("slow"))


def test_the_time_limit_of_an_environment_still_holds():
    envs = make("CartPole-v1", 1, 0, tolerance=Tolerance(), max_episode_steps=3)
    steps = walk(envs, 3)
    assert steps[2].truncated.tolist() == [True]
    assert isinstance(gym.make("CartPole-v1"), gym.Wrapper)
