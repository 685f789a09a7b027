"""What environments promise: broken in each way, it is told with the same words wherever the environment is stepped."""

from __future__ import annotations

import functools

import gymnasium as gym
import numpy as np
import pytest

from starling.core.errors import ConfigError, EnvError, RequestError, SpaceError
from starling.envs import GymEnvs, VectorEnvs, check, make
from starling.envs.promises import broken_flags, broken_reward, shown
from starling.envs.tolerant import Tolerance
from tests.envs.misbehaving import EMPTY, MISDECLARED, Misdeclared, Stuck, id_of

from .broken import Good
from .pooled import Seeded

RESULTS = {
    "reward is huge": "the reward 1000",
    "reward cannot be shown": "the reward of type int arrived",
    "reward is decimal": "the reward Decimal('1.5') (Decimal) arrived",
    "reward is none": "the reward None (NoneType) arrived",
    "reward is text": "the reward 'high' (str) arrived",
    "several rewards": "the reward array([1., 2.]) (ndarray) arrived. A reward is one finite number",
    "several ends": "terminated=array([False,  True]) (ndarray) arrived. terminated and truncated are one truth value",
    "end is text": "terminated='no' (str) arrived",
    "end is none": "terminated=None (NoneType) arrived",
    "cut is none": "truncated=None (NoneType) arrived",
    "four results": "step() returned a tuple of 4. step() returns (observation, reward, terminated, truncated, info).",
    "no tuple": "step() returned ndarray",
    "nothing returned": "step() returned NoneType",
    "wrong shape": "shape [3] arrived, [2] was expected",
    "float64 observation": "dtype float64 arrived, float32 was expected",
    "ragged observation": "inhomogeneous",
    "observation is none": "dtype object arrived",
}
ACROSS_PROCESSES = ("reward is huge", "cut is none", "four results", "nothing returned", "wrong shape")


def third_step(envs) -> str:
    """What is said of the environment that goes wrong at the third step."""
    envs.reset()
    still = np.zeros((envs.count, 1), np.float32)
    envs.step(still)
    envs.step(still)
    with pytest.raises(EnvError) as caught:
        envs.step(still)
    assert caught.value.__cause__ is None, "the environment raised nothing"
    return str(caught.value)


@pytest.mark.parametrize("fault", RESULTS)
def test_a_result_that_cannot_be_used_is_told_with_its_environment_seed_and_step(fault):
    with make(Seeded, 3, 0, fault=fault, wanted=-1) as probe:
        seed = probe.state()["envs"][1]["seed"]
    said = third_step(make(Seeded, 3, 0, fault=fault, wanted=seed))
    assert said.startswith(f"Seeded, environment 1, episode seed {seed}, step 3 of the episode: ")
    assert RESULTS[fault] in said


@pytest.mark.parametrize("fault", RESULTS)
def test_an_environment_that_may_crash_is_told_the_same(fault):
    said = third_step(make(Good, 2, 0, fault=fault))
    assert third_step(make(Good, 2, 0, fault=fault, tolerance=Tolerance(most=1))) == said


@pytest.mark.parametrize("fault", ACROSS_PROCESSES)
def test_a_worker_says_the_same_as_without_workers(fault):
    """Row 1 of 2, which is in the second worker."""
    with make(Seeded, 2, 0, fault=fault, wanted=-1) as probe:
        settings = {"fault": fault, "wanted": probe.state()["envs"][1]["seed"]}
    said = third_step(make(Seeded, 2, 0, **settings))
    with make(Seeded, 2, 0, workers=2, **settings) as envs:
        assert third_step(envs) == said


@pytest.mark.parametrize("fault", RESULTS)
def test_a_check_finds_it_with_the_same_words(fault):
    findings = [finding for finding in check(functools.partial(Good, fault)) if finding.level == "error"]
    assert len(findings) == 1
    assert RESULTS[fault].partition(". ")[0] in findings[0].found
    assert "at step 3 of an episode" in findings[0].found
    assert findings[0].rule
    assert findings[0].remedy


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("reset without info", "reset() returned ndarray. reset() returns (observation, info)."),
        ("nothing at reset", "reset() returned NoneType"),
    ],
)
def test_a_reset_that_gives_no_pair_is_told(fault, message):
    for tolerance in (None, Tolerance(most=1)):
        with pytest.raises(EnvError) as caught:
            make(Good, 2, 0, fault=fault, tolerance=tolerance)
        assert message in str(caught.value)
        assert "Good, environment 0, episode seed" in str(caught.value)


def test_a_malformed_step_is_told_where_masks_and_extras_look_at_it_first():
    class Short(Stuck):
        def step(self, action):
            return super().step(action)[:4]

    envs = GymEnvs(Short, 1, 0, "Short")
    envs.reset()
    with pytest.raises(EnvError, match=r"step 1 of the episode: step\(\) returned a tuple of 4"):
        envs.step([0])
    with pytest.raises(EnvError, match=r"step 1 of the episode: step\(\) returned a tuple of 4"):
        GymEnvs(Short, 1, 0, "Short", extras=("cost",))
    with pytest.raises(EnvError, match=r"info=None .* arrived, a dict was expected"):
        GymEnvs(lambda: Informing(None), 1, 0, "Informing", extras=("cost",))


class Informing(Good):
    """Its info is a dict in the first step alone where ``info`` is something else."""

    def __init__(self, info, first=1):
        super().__init__()
        self.told, self.first = info, first

    def step(self, action):
        info = {"cost": 1.0} if self.steps + 1 < self.first else self.told
        return *super().step(action)[:4], info


def test_an_info_that_is_none_is_told_in_a_later_step_too():
    envs = GymEnvs(lambda: Informing(None, first=3), 1, 0, "Informing", extras=("cost",))
    envs.reset()
    envs.step([[0.0]])
    envs.step([[0.0]])
    with pytest.raises(EnvError, match=r"step 3 of the episode: info=None \(NoneType\) arrived. info is a dict."):
        envs.step([[0.0]])


@pytest.mark.parametrize("reward", [1, True, np.float32(2), np.array(3.0), np.int64(4)])
def test_any_one_number_is_a_reward(reward):
    assert broken_reward(reward) is None


@pytest.mark.parametrize("flag", [True, False, np.True_, np.False_, 0, 1, np.array(True), np.array([False])])
def test_any_spelling_of_a_truth_value_is_a_flag(flag):
    assert broken_flags(flag, flag) is None


@pytest.mark.parametrize("flag", [2, 0.5, None, "", [], {}, float("nan"), np.zeros(2), object()])
def test_what_is_no_truth_value_is_no_flag(flag):
    assert broken_flags(flag, False) is not None
    assert broken_flags(False, flag) is not None


def test_what_cannot_be_shown_is_told_by_its_type():
    class Shy:
        def __repr__(self):
            raise RuntimeError("do not look")

    assert shown(Shy()) == "of type Shy"
    assert shown("x" * 100) == f"{repr('x' * 100)[:60]}… (str)"


@pytest.mark.parametrize("flag", [np.False_, 0])
def test_flags_that_are_false_in_another_spelling_end_no_episode(flag):
    class Spelling(Good):
        def step(self, action):
            return *super().step(action)[:2], flag, flag, {}

    envs = GymEnvs(Spelling, 2, 0, "Spelling")
    envs.reset()
    step = envs.step(np.zeros((2, 1), np.float32))
    assert not step.terminated.any()
    assert not step.episodes


DECLARED = {
    "no observation space": "there is no observation_space",
    "no action space": "there is no action_space",
    "an array as space": "observation_space: the space numpy's ndarray arrived",
    "a number as action space": "action_space: the space int arrived (2); supported are Box",
    "a space of gym": "observation_space: the space gym's Box arrived (Box(2,))",
    "an empty action space": "action_space: Box([], [], (0,), float32) is empty",
    **dict.fromkeys(EMPTY, "is empty. A space has at least one number"),
}


@pytest.mark.parametrize("fault", DECLARED)
@pytest.mark.parametrize("tolerance", [None, Tolerance()])
def test_what_is_no_space_or_an_empty_one_is_refused(fault, tolerance):
    with pytest.raises(SpaceError) as caught:
        make(Misdeclared, 1, 0, fault=fault, tolerance=tolerance)
    assert str(caught.value).startswith("Misdeclared")
    assert DECLARED[fault] in str(caught.value)


@pytest.mark.parametrize("fault", MISDECLARED)
def test_a_check_finds_what_is_declared_wrongly(fault):
    (finding,) = [finding for finding in check(id_of(fault)) if finding.level == "error"]
    expected = DECLARED.get(fault, "the constructor raised")
    assert expected in finding.found
    assert finding.remedy


def test_a_space_with_an_empty_part_is_taken():
    class Partly(Good):
        def __init__(self):
            super().__init__()
            empty = gym.spaces.Box(-1, 1, (0,), np.float32)
            self.observation_space = gym.spaces.Dict({"nothing": empty, "place": self.observation_space})

        def observe(self):
            return {"nothing": np.zeros(0, np.float32), "place": self.state.copy()}

    assert GymEnvs(Partly, 2, 0, "Partly").reset()["place"].shape == (2, 2)


def test_a_vectorised_environment_without_a_space_is_refused():
    env = gym.vector.SyncVectorEnv([Good])
    del env.single_action_space
    with pytest.raises(SpaceError, match="Vector: there is no single_action_space"):
        VectorEnvs(env, 0, "Vector")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("constructor raises", "the constructor raised RuntimeError: no road to drive on"),
        ("constructor mixes types", "the constructor raised TypeError: unsupported operand"),
    ],
)
def test_a_constructor_that_raises_is_told_with_its_own_frames(fault, message):
    with pytest.raises(EnvError) as caught:
        make(id_of(fault), 1, 0)
    assert str(caught.value) == f"{id_of(fault)}: {message}"
    frame = caught.value.__cause__.__traceback__
    while frame.tb_next is not None:
        frame = frame.tb_next
    assert frame.tb_frame.f_code.co_filename.endswith("misbehaving.py")


def test_options_that_a_constructor_does_not_take_are_a_bad_request():
    with pytest.raises(ConfigError, match=r"cannot be made with \{'wheels': 3\}.*'wheels'"):
        make("CartPole-v1", 1, 0, wheels=3)
    for steps in (0, "many", True, 1.5):
        for env in ("CartPole-v1", Good):
            with pytest.raises(ConfigError, match="a time limit must be an integer of at least 1"):
                make(env, 1, 0, max_episode_steps=steps)


@pytest.mark.parametrize("name", ["a:b:CartPole-v1", ":CartPole-v1", ".a:CartPole-v1", "a..b:CartPole-v1"])
def test_a_name_with_what_is_no_module_is_a_bad_request(name):
    with pytest.raises(ConfigError, match="give an id, or MODULE:ID"):
        make(name, 1, 0)


def test_a_module_that_cannot_be_imported_is_told(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "spoilt_module.py").write_text("1 / 0")
    with pytest.raises(EnvError, match="importing spoilt_module raised ZeroDivisionError") as caught:
        make("spoilt_module:Toy-v0", 1, 0)
    assert caught.value.__cause__ is not None
    with pytest.raises(RequestError, match="nowhere_at_all:Toy-v0 cannot be imported: No module named"):
        make("nowhere_at_all:Toy-v0", 1, 0)
