"""Environments that cannot be made, or break their promises: a clear message, the right exit code, no traceback."""

from __future__ import annotations

import signal

import pytest

from starling.envs import bounds
from tests.envs.misbehaving import BROKEN, EMPTY, MISDECLARED, id_of
from tests.experiments.commands import finish, launch, summary

TINY = ["--algo", "a2c", "--a2c.hidden", "4", "--a2c.rollout", "8", "--quiet", "--eval-episodes", "1", "--steps", "64"]
TWO = ["--a2c.envs", "2"]
SYNC = [*TWO, "--formation", "sync", "--actors", "1"]
WORKERS = ["--a2c.envs", "4", "--env-workers", "2"]
PLACE = "environment 0, episode seed"
RULE = "step() returns (observation, reward, terminated, truncated, info)"
WORDS = {
    "reward is huge": "the reward 1000",
    "reward is none": "the reward None (NoneType) arrived",
    "reward is text": "the reward 'high' (str) arrived",
    "several rewards": "the reward array([1., 2.]) (ndarray) arrived",
    "several ends": "terminated=array([False,  True]) (ndarray) arrived",
    "end is text": "terminated='no' (str) arrived",
    "end is none": "terminated=None (NoneType) arrived",
    "cut is none": "truncated=None (NoneType) arrived",
    "four results": f"step() returned a tuple of 4. {RULE}",
    "no tuple": f"step() returned ndarray. {RULE}",
    "nothing returned": f"step() returned NoneType. {RULE}",
    "reset without info": "reset() returned ndarray. reset() returns (observation, info).",
    "wrong shape": "shape [3] arrived, [2] was expected",
    "float64 observation": "dtype float64 arrived, float32 was expected",
}


@pytest.mark.parametrize("fault", WORDS)
def test_a_broken_promise_fails_the_run_with_environment_seed_and_step(starling, fault, tmp_path):
    said = starling("train", "--env", id_of(fault), "--out", tmp_path / "run", *TINY, *TWO)
    assert said.code == 1
    step = 0 if fault.startswith("reset") else 3
    assert f"{id_of(fault)}, {PLACE}" in said.err
    assert f"step {step} of the episode: " in said.err
    assert WORDS[fault] in said.err
    assert "File" not in said.err, "nothing of ours, and the environment raised nothing"


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["four results", "nothing returned", "reward is huge", "cut is none", "wrong shape"])
def test_a_broken_promise_is_told_with_the_same_words_wherever_it_is_stepped(starling, fault, tmp_path):
    said = {
        name: starling("train", "--env", id_of(fault), "--out", tmp_path / name, *TINY, *how)
        for name, how in {"single": TWO, "workers": WORKERS, "sync": SYNC}.items()
    }
    assert [each.code for each in said.values()] == [1, 1, 1]
    assert said["workers"].err == said["single"].err
    assert said["sync"].err == said["single"].err.replace("starling: ", "starling: actor-0: ")
    assert summary(tmp_path / "sync")["status"] == "failed"


@pytest.mark.parametrize("how", [TWO, SYNC, WORKERS], ids=["single", "sync", "workers"])
def test_a_constructor_that_raises_fails_the_run_with_its_own_frames(starling, how, tmp_path):
    said = starling("train", "--env", id_of("constructor raises"), "--out", tmp_path / "run", *TINY, *how)
    assert said.code == 1
    assert "the constructor raised RuntimeError: no road to drive on" in said.err
    assert 'misbehaving.py", line' in said.err
    assert "starling/envs" not in said.err
    assert not (tmp_path / "run").exists()


DECLARED = {
    "no observation space": "there is no observation_space",
    "an array as space": "the space numpy's ndarray arrived",
    "a number as action space": "the space int arrived (2); supported are Box",
    "a space of gym": "the space gym's Box arrived",
    "an empty action space": "is empty. A space has at least one number",
    **dict.fromkeys(EMPTY, "is empty. A space has at least one number"),
}


@pytest.mark.parametrize("fault", DECLARED)
@pytest.mark.parametrize("how", [TWO, SYNC, WORKERS], ids=["single", "sync", "workers"])
def test_what_is_no_space_or_an_empty_one_is_a_bad_request(starling, fault, how, tmp_path):
    said = starling("train", "--env", id_of(fault), "--out", tmp_path / "run", *TINY, *how)
    assert said.code == 2
    assert id_of(fault) in said.err
    assert DECLARED[fault] in said.err
    assert not (tmp_path / "run").exists()


def test_a_mask_that_allows_nothing_fails_the_run(starling, tmp_path):
    said = starling("train", "--env", "tests.envs.misbehaving:stuck-v0", "--out", tmp_path / "run", *TINY, *TWO)
    assert said.code == 1
    assert f"{PLACE}" in said.err
    assert "step 3 of the episode: the action mask allows no action." in said.err


@pytest.mark.parametrize("fault", [*MISDECLARED, *BROKEN])
def test_a_check_explains_what_is_wrong(starling, fault):
    said = starling("check-env", id_of(fault))
    assert said.code == (0 if fault == "out of bounds" else 1)
    assert "    rule:   " in said.out
    assert "    remedy: " in said.out
    assert {**WORDS, **DECLARED}.get(fault, "").partition(". ")[0] in said.out


def test_leaving_the_bounds_is_told_once_and_fails_nothing(starling, tmp_path, monkeypatch):
    monkeypatch.setattr(bounds, "_warned", set())
    env = id_of("out of bounds")
    with pytest.warns(UserWarning, match=r"out-of-bounds-v0: the observation, number \[0\], is 101") as told:
        said = starling("train", "--env", env, "--out", tmp_path / "run", *TINY, *TWO)
    assert said.code == 0
    assert len(told) == 1


@pytest.mark.parametrize("name", ["a:b:CartPole-v1", ":CartPole-v1"])
def test_a_name_that_is_none_is_a_bad_request(starling, name):
    for command in (["train", "--env", name], ["check-env", name]):
        said = starling(*command)
        assert said.code == 2
        assert "give an id, or MODULE:ID" in said.err


def test_an_id_with_its_module_trains_with_its_vectorised_form(starling, tmp_path):
    args = ["--env", "gymnasium:CartPole-v1", "--a2c.envs", "8", "--out", tmp_path / "run"]
    assert starling("train", *TINY, *args).code == 0


def test_a_worker_that_crashes_in_a_step_is_told_with_environment_seed_and_step(tmp_path):
    """In the last of four rows, which a worker beside the run's own process steps."""
    options = tmp_path / "run.yaml"
    options.write_text(f"env_options: {{fault: step crashes, wanted: {last_seed()}}}\n")
    env = ["--env", "tests.envs.misbehaving:seeded-v0", "--config", str(options), "--out", str(tmp_path / "run")]
    code, _, err = finish(launch(["train", *TINY, *WORKERS, *env]))
    assert code == 1
    assert f"worker 0 with environments 2 to 3 was killed by {signal.SIGSEGV.name} in a step of environment 3" in err
    assert f"(episode seed {last_seed()}, step 3 of the episode)" in err
    assert "Traceback" not in err


def last_seed() -> int:
    """Of the first episode in the last of four rows."""
    from starling.envs import make

    with make("tests.envs.misbehaving:seeded-v0", 4, 0, fault="", wanted=-1) as envs:
        return envs.state()["envs"][3]["seed"]
