"""Observations outside their bounds: told once, by a few looks."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from starling.core.spaces import Bool, Dict, Float, Int
from starling.envs import GymEnvs, VectorEnvs, bounds, make
from starling.envs.bounds import EVERY, FIRST, NEVER, BoundsWatch, outside_bounds

from .broken import Good


@pytest.fixture(autouse=True)
def nobody_warned(monkeypatch):
    monkeypatch.setattr(bounds, "_warned", set())


def walk(envs, steps):
    with envs:
        envs.reset()
        for _ in range(steps):
            envs.step(np.zeros((envs.count, 1), np.float32))


class Beyond(Good):
    """Leaves its bounds in step ``at`` of every episode, which has no end."""

    def __init__(self, at: int) -> None:
        super().__init__("never ends")
        self.leaves_at = at

    def observe(self):
        return np.array([0.0, 101.5 if self.steps == self.leaves_at else 0.0], np.float32)


def vectorised(at: int) -> VectorEnvs:
    env = SyncVectorEnv([lambda: Beyond(at)] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    return VectorEnvs(env, 0, "Beyond")


@pytest.mark.parametrize("at", [0, 1, FIRST])
@pytest.mark.parametrize("kind", [vectorised, lambda at: GymEnvs(lambda: Beyond(at), 2, 0, "Beyond")])
def test_leaving_the_bounds_early_is_told_once_and_not_refused(kind, at):
    message = r"Beyond: the observation, number \[1\], is 101.5, and the bounds are -100 and 100. .* told once"
    with pytest.warns(UserWarning, match=message) as told:
        walk(kind(at), FIRST + 1)
    assert len(told) == 1
    walk(kind(at), FIRST + 1)  # as those that a run is evaluated in; a warning would be an error


def test_later_only_some_steps_are_looked_at():
    watch = BoundsWatch("Late", Float((2,), -1, 1))
    fine, beyond = np.zeros((3, 2), np.float32), np.full((3, 2), 2.0, np.float32)
    looked = []
    for step in range(FIRST + 3 * EVERY):
        if step >= watch.next:
            looked.append(step)
        watch.look(fine, step)
    assert looked == [*range(FIRST + 1), FIRST + EVERY, FIRST + 2 * EVERY]
    watch.look(beyond, watch.next - 1)  # between two looks
    with pytest.warns(UserWarning, match="Late"):
        watch.look(beyond, watch.next)
    assert watch.next == NEVER


def test_where_nothing_can_be_out_of_bounds_nobody_looks():
    for space in (Float((2,)), Bool((2,)), Int((4, 4), 0, 256, "uint8"), Dict()):
        assert BoundsWatch("Free", space).next == NEVER
    assert BoundsWatch("Bounded", Dict(a=Float(), b=Int((), 0, 255, "uint8"))).next == 0


def test_only_who_has_the_first_environment_looks():
    walk(GymEnvs(lambda: Beyond(1), 2, 0, "Beyond", first=2), 2)  # a warning would be an error


def test_with_workers_it_is_told_by_the_process_that_asks():
    with pytest.warns(UserWarning, match="Good: the observation") as told:
        walk(make(Good, 2, 0, workers=2, fault="out of bounds"), 3)
    assert len(told) == 1


def test_rounding_is_no_leaving():
    space = Float((), -1, 1000)
    assert outside_bounds(space, np.array([1000.005, -1.000005], np.float32)) is None
    assert outside_bounds(space, np.array([1000.05], np.float32)) is not None
    assert outside_bounds(space, np.array([-1.0001], np.float32)) is not None


def test_each_number_has_bounds_of_its_own():
    space = Dict(place=Float((2,), np.array([-1, -np.inf]), np.array([1, 5])), level=Int((), 3, 8, "int64"))
    fine = {"level": np.array([3, 7]), "place": np.array([[1, -1e30], [0, 5]], np.float32)}
    assert outside_bounds(space, fine) is None
    found = outside_bounds(space, fine | {"place": np.array([[1, 0], [0, 6]], np.float32)}).found
    assert found == "the observation at 'place', number [1], is 6, and the bounds are -inf and 5"
    found = outside_bounds(space, fine | {"level": np.array([4, 8])}).found
    assert found == "the observation at 'level' is 8, and the bounds are 3 and 7"


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "MountainCar-v0", "Acrobot-v1", "FrozenLake-v1"])
def test_gymnasiums_own_environments_stay_within_theirs(name):
    with make(name, 4, 0) as envs:
        sample, rng = envs.action_space.ranked(batch=True), np.random.default_rng(0)
        envs.reset()
        for _ in range(300):
            assert outside_bounds(envs.observation_space, envs.step(sample.sample(rng, (4,))).obs) is None
    assert gym.make(name).observation_space is not None
