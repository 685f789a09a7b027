"""make: every kind of request, and every way in which it can fail."""

from __future__ import annotations

import builtins
import functools
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import SyncVectorEnv

from starling.core.errors import ConfigError, EnvError, MissingExtraError, RequestError, SpaceError, UnknownNameError
from starling.envs import GymEnvs, VectorEnvs, check, make
from starling.envs.constructing import ENVIRONMENTS, environment_ids

from .broken import Good
from .counting import Counting


def forbid(monkeypatch, *packages):
    """Make importing ``packages`` fail, as if they were not installed."""
    original = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.split(".")[0] in packages:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return original(name, *args, **kwargs)

    for name in [name for name in sys.modules if name.split(".")[0] in packages]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", refuse)


def test_an_id_makes_gym_envs():
    with make("CartPole-v1", 3, 0) as envs:
        assert isinstance(envs, GymEnvs)
        assert (envs.name, envs.count) == ("CartPole-v1", 3)


def test_keyword_arguments_reach_the_environment():
    with make("FrozenLake-v1", 1, 0, map_name="8x8") as envs:
        assert envs.observation_space.categories == 64


def test_max_episode_steps_truncates():
    with make("Pendulum-v1", 1, 0, max_episode_steps=2) as envs:
        envs.reset()
        assert not envs.step([[0.0]]).truncated[0]
        assert envs.step([[0.0]]).truncated[0]


def test_an_id_with_a_module_imports_it_first(tmp_path, monkeypatch):
    (tmp_path / "walks_of_mine.py").write_text(
        "import gymnasium as gym\n"
        "gym.register('Walk-v0', entry_point='gymnasium.envs.classic_control:CartPoleEnv', max_episode_steps=7)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with make("walks_of_mine:Walk-v0", 2, 0) as envs:
        assert envs.name == "walks_of_mine:Walk-v0"
    gym.registry.pop("Walk-v0")


def test_an_id_with_its_module_has_the_vectorised_form_too():
    with make("gymnasium:CartPole-v1", 8, 0) as envs, make("CartPole-v1", 8, 0) as other:
        assert isinstance(envs, VectorEnvs)
        np.testing.assert_array_equal(envs.reset(), other.reset())


def no_vector(num_envs, **settings):
    raise RuntimeError("only one at a time")


class Undeclared(SyncVectorEnv):
    """Does not say how it begins new episodes, and has no spaces."""

    def __init__(self, num_envs, **settings):
        super().__init__([Good] * num_envs)
        self.metadata = {"autoreset_mode": None}
        del self.single_observation_space


@pytest.mark.parametrize("vector", [no_vector, Undeclared, "nowhere_at_all:Vector", lambda num_envs: None])
@pytest.mark.parametrize("limit", [None, 7])
def test_a_vectorised_form_with_which_anything_is_wrong_is_not_taken(vector, limit, monkeypatch):
    spec = EnvSpec("Walk-v0", Good, max_episode_steps=limit, vector_entry_point=vector)
    monkeypatch.setitem(gym.registry, "Walk-v0", spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Gymnasium's, of the missing mode
        with make("Walk-v0", 8, 0) as envs:
            assert isinstance(envs, GymEnvs)


def test_a_constructor_makes_gym_envs_and_is_called_count_times():
    made = []

    def construct(fault=""):
        made.append(fault)
        return Good(fault)

    with make(construct, 3, 0, fault="") as envs:
        assert isinstance(envs, GymEnvs)
        assert envs.name == "construct"
    assert len(made) == 3


def test_a_constructor_takes_a_time_limit():
    with make(Good, 1, 0, max_episode_steps=1) as envs:
        envs.reset()
        assert envs.step([[0.0]]).truncated[0]


def test_vector_environments_and_their_constructors_make_vector_envs():
    vector = functools.partial(SyncVectorEnv, [Counting, Counting])
    for env in (vector, vector()):
        with make(env, 2, 0) as envs:
            assert isinstance(envs, VectorEnvs)


def test_a_vector_environment_of_another_size_is_refused():
    with pytest.raises(ConfigError, match="holds 2 environments and count=3"):
        make(SyncVectorEnv([Counting, Counting]), 3, 0)


def sized(num_envs, index=0):
    """A constructor that is told how many environments to make."""
    return SyncVectorEnv([functools.partial(Counting, index)] * num_envs)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_constructor_that_takes_num_envs_is_called_with_the_count(count):
    with make(sized, count, 0, index=7) as envs:
        assert isinstance(envs, VectorEnvs)
        assert envs.reset()[:, 0].tolist() == [7] * count
    with make(functools.partial(gym.make_vec, "CartPole-v1"), count, 0) as envs:
        assert envs.count == count


def test_a_constructor_that_takes_num_envs_and_makes_one_environment_is_refused():
    def single(num_envs):
        return Counting()

    with pytest.raises(EnvError, match=r"single takes num_envs, was called with num_envs=3 and returned Counting"):
        make(single, 3, 0)


def test_a_constructor_of_a_fixed_number_of_environments_says_how_to_make_others():
    vector = functools.partial(SyncVectorEnv, [Counting, Counting])
    with pytest.raises(ConfigError, match=r"holds 2 environments and count=1.*Ask for 2, or .* takes num_envs"):
        make(vector, 1, 0)


def test_settings_that_a_vector_environment_cannot_take_are_refused():
    vector = functools.partial(SyncVectorEnv, [Counting, Counting])
    with pytest.raises(ConfigError, match="already made; size cannot be given"):
        make(vector(), 2, 0, size=3)
    with pytest.raises(ConfigError, match="max_episode_steps has no effect"):
        make(vector, 2, 0, max_episode_steps=3)


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_a_count_that_is_none_is_refused(count):
    with pytest.raises(ConfigError, match="at least 1"):
        make("CartPole-v1", count, 0)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("CartPol-v1", "CartPole-v1"),
        ("cartpole-v1", "CartPole-v1"),
        ("CartPole-v77", "CartPole-v1"),
        ("Nope/CartPole-v1", "CartPole-v1"),
    ],
)
def test_an_unknown_id_suggests_the_nearest(name, near):
    with pytest.raises(UnknownNameError, match=f"unknown environment '{name}'. Did you mean '{near}'?") as caught:
        make(name, 1, 0)
    assert len(str(caught.value)) < 400


def test_an_unknown_setting_is_refused_with_its_name():
    with pytest.raises(ConfigError, match="gravity_of_mars"):
        make("CartPole-v1", 1, 0, gravity_of_mars=3)


def test_a_malformed_id_is_refused():
    with pytest.raises(RequestError, match="Cart Pole"):
        make("Cart Pole!", 1, 0)


def test_a_module_that_is_not_there_is_named():
    with pytest.raises(RequestError, match="no_such_package"):
        make("no_such_package:Env-v0", 1, 0)


def test_a_constructor_that_raises_or_returns_something_else_is_told():
    def failing():
        raise ValueError("no map")

    with pytest.raises(EnvError, match="failing: the constructor raised ValueError: no map"):
        make(failing, 1, 0)
    with pytest.raises(EnvError, match=r"returned dict; a gymnasium\.Env"):
        make(dict, 1, 0)


def test_an_unsupported_space_is_refused_before_anything_runs():
    class Talking(Good):
        def __init__(self):
            super().__init__()
            self.observation_space = gym.spaces.Text(3)

    with pytest.raises(SpaceError, match="Text"):
        make(Talking, 1, 0)


@pytest.mark.parametrize("name", ["LunarLander-v3", "LunarLanderContinuous-v3"])
def test_a_lander_without_box2d_points_to_envpool(name, monkeypatch):
    forbid(monkeypatch, "Box2D")
    monkeypatch.delitem(sys.modules, "gymnasium.envs.box2d", raising=False)
    monkeypatch.delitem(sys.modules, "gymnasium.envs.box2d.lunar_lander", raising=False)
    with pytest.raises(RequestError, match=f"needs Box2D.*Use 'envpool:{name}'.*pip install 'gymnasium\\[box2d\\]'"):
        make(name, 1, 0)


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [("envpool:Pong-v5", "envpool", "atari"), ("ALE/Pong-v5", "ale_py", "atari")],
)
def test_a_missing_package_names_the_command_that_installs_it(name, package, extra, monkeypatch):
    forbid(monkeypatch, package)
    with pytest.raises(MissingExtraError, match=rf"pip install 'starling-rl\[{extra}\]'"):
        make(name, 1, 0)


def test_missing_mujoco_names_the_command_that_installs_it(monkeypatch):
    def refuse(*args, **kwargs):
        raise gym.error.DependencyNotInstalled("no mujoco")

    monkeypatch.setattr(gym, "make", refuse)
    with pytest.raises(MissingExtraError, match=r"pip install 'starling-rl\[mujoco\]'"):
        make("Hopper-v5", 1, 0)


def test_the_mujoco_extra_steps_hopper():
    pytest.importorskip("mujoco")
    with make("Hopper-v5", 2, 0) as envs:
        assert envs.reset().shape == (2, 11)
        assert envs.step(np.zeros((2, 3), np.float32)).obs.shape == (2, 11)


class Adapter(GymEnvs):
    """An adapter of its own: it is told its task, and steps all rows itself."""

    def __init__(self, task, count, seed, *, extras=(), form="vector"):
        super().__init__(functools.partial(Counting, int(task), form), count, seed, f"rows:{task}", extras)


def vector_of(task, num_envs):
    return SyncVectorEnv([functools.partial(Counting, int(task))] * num_envs)


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(ENVIRONMENTS, "_parts", dict(ENVIRONMENTS._parts))
    for name, value in {"counting": Counting, "rows": Adapter, "vectors": vector_of}.items():
        ENVIRONMENTS.add(name, value)


@pytest.mark.usefixtures("registered")
def test_a_registered_name_makes_what_it_stands_for_and_is_told_its_task():
    with make("counting", 2, 0) as envs:
        assert (envs.name, envs.count, type(envs)) == ("counting", 2, GymEnvs)
    with make("counting:3", 2, 0, form="dict") as envs:
        assert envs.reset()["place"][:, 0].tolist() == [3, 3]
    with make("vectors:4", 3, 0) as envs:
        assert (type(envs), envs.reset()[:, 0].tolist()) == (VectorEnvs, [4, 4, 4])
    with make("counting:5", 2, 0, workers=2) as envs:
        assert envs.reset()[:, 0].tolist() == [5, 5]
    assert {"counting", "envpool", "CartPole-v1"} <= set(environment_ids())
    assert not [finding for finding in check("counting", steps=100) if finding.level == "error"]


@pytest.mark.usefixtures("registered")
def test_an_adapter_steps_its_rows_itself():
    with make("rows:7", 2, 0, form="dict") as envs:
        assert (type(envs), envs.name) == (Adapter, "rows:7")
        assert envs.reset()["place"][:, 0].tolist() == [7, 7]
    assert not [finding for finding in check("rows:7", steps=100) if finding.level == "error"]
    with pytest.raises(ConfigError, match="workers=2 has no effect on rows:7, which steps its rows itself"):
        make("rows:7", 2, 0, workers=2)
    with pytest.raises(ConfigError, match="rows:7 has no asynchronous form"):
        make("rows:7", 2, 0, asynchronous=True)


@pytest.mark.usefixtures("registered")
def test_a_misspelt_registered_name_is_suggested():
    with pytest.raises(UnknownNameError, match="Did you mean 'counting'"):
        make("conting", 1, 0)
