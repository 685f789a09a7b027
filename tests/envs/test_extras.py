"""Extras: what was asked for of info, beside every step."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from starling.core.errors import EnvError
from starling.core.spaces import Bool, Dict, Float, Int
from starling.envs import GymEnvs, VectorEnvs, make
from starling.envs.tolerant import Tolerance

from .counting import Counting

NAMES = ("cost", "seat", "won")


class Telling(Counting):
    """Tells a cost of half its step, the seat (environment, step) as int64, and whether the step is even; not at reset.

    Every episode looks like the first, and so does environment 0 after it was asked what it tells.
    """

    def reset(self, *, seed=None, options=None):
        self.episode = -1
        return super().reset(seed=seed)

    def step(self, action):
        *result, _ = super().step(action)
        return *result, self.told()

    def told(self):
        return {"cost": self.steps / 2, "seat": np.array([self.index, self.steps]), "won": self.steps % 2 == 0}


class Forgetful(Telling):
    def told(self):
        return super().told() if self.index != 1 or self.steps < 2 else {"won": True}


def telling(way, cls=Telling, extras=NAMES):
    constructors = [functools.partial(cls, i) for i in range(3)]
    if way == "gym":
        left = list(reversed(constructors))
        return GymEnvs(lambda: left.pop()(), 3, 0, "Telling", extras)
    return VectorEnvs(SyncVectorEnv(constructors, autoreset_mode=way), 0, "Telling", extras=extras)


@pytest.mark.parametrize("way", ["gym", *AutoresetMode], ids=str)
def test_extras_belong_to_the_step_they_came_with(way):
    envs = telling(way)
    assert envs.extras_space == Dict(cost=Float(), seat=Int((2,), -(2**63), 2**63, "int64"), won=Bool())
    obs = envs.reset()
    assert obs.tolist() == [[i, 0, 0, -1] for i in range(3)]
    seen = 0
    for _ in range(20):
        step = envs.step(np.zeros(3, int))
        assert list(step.extras) == list(NAMES)
        assert [step.extras[name].dtype for name in NAMES] == [np.float32, np.int64, np.bool_]
        ended = (step.terminated | step.truncated) & step.valid
        after = step.obs if step.final_obs is None else np.where(ended[:, None], step.final_obs, step.obs)
        for i in range(3):
            count = int(after[i, 2]) if step.valid[i] else 0
            assert step.extras["cost"][i] == count / 2
            assert step.extras["seat"][i].tolist() == ([i, count] if step.valid[i] else [0, 0])
            assert step.extras["won"][i] == (step.valid[i] and count % 2 == 0)
            seen += bool(ended[i])
    assert seen > 9


def test_without_being_asked_for_there_are_none():
    with make(Counting, 2, 0) as envs:
        assert envs.extras_space == Dict()
        assert envs.reward_space == Float()
        envs.reset()
        assert envs.step([0, 0]).extras == {}


@pytest.mark.parametrize("way", ["gym", AutoresetMode.SAME_STEP], ids=str)
def test_an_extra_that_never_comes_is_told_when_the_environments_are_made(way):
    with pytest.raises(EnvError, match=r"info has no 'price', which was asked for as an extra; keys .* arrived"):
        telling(way, extras=("price",))


@pytest.mark.parametrize("way", ["gym", *AutoresetMode], ids=str)
def test_an_extra_that_stops_coming_is_told_with_its_name(way):
    envs = telling(way, Forgetful)
    envs.reset()
    envs.step([0, 0, 0])
    with pytest.raises(EnvError, match="info has no 'cost', which was asked for as an extra") as caught:
        envs.step([0, 0, 0])
    assert way != "gym" or "environment 1, episode seed" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), "at 'cost'.*finite numbers were expected"),
        (np.zeros(2), r"at 'cost': shape \[2\] arrived, \[\] was expected"),
        ("dear", "at 'cost': dtype <U4 arrived, float32 was expected"),
    ],
)
def test_an_extra_that_changes_its_looks_is_told(value, message):
    class Changing(Telling):
        def told(self):
            return super().told() | ({"cost": value} if self.steps == 2 else {})

    envs = telling("gym", Changing)
    envs.reset()
    envs.step([0, 0, 0])
    with pytest.raises(EnvError, match=message):
        envs.step([0, 0, 0])


def test_what_is_no_number_is_no_extra():
    class Wordy(Telling):
        def told(self):
            return {"cost": "dear"}

    with pytest.raises(EnvError, match="info's 'cost' is 'dear'; numbers and arrays of them can be extras"):
        telling("gym", Wordy, ("cost",))


def test_a_step_that_crashed_has_no_extras_and_the_others_keep_theirs():
    class Crashing(Telling):
        crashes = 0

        def step(self, action):
            if self.steps == 1 and Crashing.crashes:
                Crashing.crashes -= 1
                raise ZeroDivisionError("the wheel came off")
            return super().step(action)

    envs = make(Crashing, 2, 0, tolerance=Tolerance(), extras=("cost",))
    envs.reset()
    Crashing.crashes = 1
    first, second = envs.step([0, 0]), envs.step([0, 0])
    assert first.extras["cost"].tolist() == [0.5, 0.5]
    assert second.extras["cost"].tolist() == [0.5, 1.0]  # what was seen last, and what came


def test_extras_survive_a_restore_and_masks_beside_them():
    class Masked(Telling):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=seed)[0], {"action_mask": np.arange(5) == 2}

        def told(self):
            return super().told() | {"action_mask": np.arange(5) == 2}

        def step(self, action):
            assert action == 3 + 2  # the only legal one, when asked what it tells too
            return super().step(action)

    with telling("gym", Masked, ("cost",)) as envs, telling("gym", Masked, ("cost",)) as other:
        envs.reset()
        envs.step([2, 2, 2])
        other.restore(envs.state())
        assert other.exact_resume
        assert other.step([2, 2, 2]).extras["cost"].tolist() == [1.0, 1.0, 1.0]


def test_envpool_tells_what_it_declares():
    pytest.importorskip("envpool")
    with make("envpool:Pong-v5", 2, 0, extras=("lives", "ram")) as envs:
        assert envs.extras_space == Dict(lives=Float(), ram=Int((128,), 0, 256, "uint8"))
        envs.reset()
        step = envs.step([0, 0])
        assert (step.extras["ram"].shape, step.extras["ram"].dtype) == ((2, 128), np.uint8)
        assert step.extras["lives"].tolist() == [0.0, 0.0]
    with pytest.raises(EnvError, match=r"envpool:Pong-v5: info has no 'cost'.*'lives', 'ram', 'reward'"):
        make("envpool:Pong-v5", 2, 0, extras=("cost",))
