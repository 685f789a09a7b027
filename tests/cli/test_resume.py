"""``starling resume``: the history that it goes on with, and what it says of settings that were edited meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from itertools import pairwise

import pytest
import yaml

from starling.cli.main import main
from starling.records.metrics import read
from tests.experiments.commands import arguments, checkpoints, finish, launch, manifest, metrics, stop_at, summary

SAVING = ["--checkpoint-every", "100", "--log-every", "150", "--keep-checkpoints", "4", "--quiet"]


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A run that Ctrl-C has stopped, and one of as many steps that nobody has."""
    folder = tmp_path_factory.mktemp("runs")
    assert main(arguments("a2c", folder / "whole", 4_096, *SAVING)) == 0
    for number in (signal.SIGINT, signal.SIGKILL):
        cut = folder / number.name
        process = launch(arguments("a2c", cut, 4_096, *SAVING))
        stop_at(process, cut, 1_000, number)
        finish(process)
        assert checkpoints(cut)[-1] < 4_096
    return folder


@pytest.fixture
def run(interrupted, tmp_path):
    """A copy of the one that was stopped, to spoil."""
    return shutil.copytree(interrupted / "SIGINT", tmp_path / "run")


def edit(run, **changes):
    """Change settings in config.yaml by hand; those of a2c with a double underscore."""
    config = yaml.safe_load((run / "config.yaml").read_text())
    for name, value in changes.items():
        if name.startswith("a2c__"):
            config["a2c"][name.removeprefix("a2c__")] = value
        else:
            config[name] = value
    (run / "config.yaml").write_text(yaml.safe_dump(config))


@pytest.mark.parametrize("number", ["SIGINT", "SIGKILL"])
def test_a_resumed_run_reports_at_the_steps_of_one_that_was_not_interrupted(starling, interrupted, number, tmp_path):
    run, whole = shutil.copytree(interrupted / number, tmp_path / "run"), interrupted / "whole"
    points = [row["env_steps"] for row in metrics(whole)]
    between = max(step for step in checkpoints(run) if step not in points)
    for later in (step for step in checkpoints(run) if step > between):
        shutil.rmtree(run / "checkpoints" / f"step-{later:012}")
    assert starling("resume", run, "--quiet").code == 0
    assert [row["env_steps"] for row in metrics(run)] == points
    assert summary(run)["parameter_hash"] == summary(whole)["parameter_hash"]


@pytest.mark.parametrize(("formation", "role"), [("sync", "learner-0"), ("async_gradients", "server-0")])
def test_a_role_that_is_restarted_from_an_older_checkpoint_leaves_one_history(formation, role, tmp_path):
    run, seen = tmp_path / "run", 0
    often = ["--log-every", "200", "--checkpoint-every", "2_000", "--quiet", "--actors", "1"]
    process = launch(arguments("a2c", run, 20_000, *often, "--formation", formation))
    while not seen:
        time.sleep(0.005)
        assert process.poll() is None, finish(process)
        past = [row["env_steps"] for row in whole_rows(run) if row["env_steps"] > (checkpoints(run) or [10**9])[-1]]
        seen = past[-1] if len(past) >= 3 else 0
    pids = {each["role"]: each["pid"] for each in json.loads((run / "status.json").read_text())["roles"]}
    os.kill(pids[role], signal.SIGKILL)
    code, _, err = finish(process)
    assert code == 0, err
    steps = [row["env_steps"] for row in metrics(run)]
    assert steps == sorted(set(steps))
    assert steps[-1] >= 20_000
    assert max(b - a for a, b in pairwise(steps)) < 1_000, "nor is a stretch missing"


def whole_rows(run):
    """What a run that goes on has reported."""
    return read(run) if (run / "metrics.jsonl").exists() else []


def test_the_manifest_keeps_the_settings_that_the_run_began_with(run):
    assert manifest(run)["settings"] == yaml.safe_load((run / "config.yaml").read_text())


def test_nothing_is_said_where_nothing_was_edited(starling, run):
    assert starling("resume", run, "--quiet").err == ""
    assert manifest(run)["resume_exact"] is True


def test_edited_settings_are_used_and_named_and_the_run_is_not_exact(starling, run):
    edit(run, seed=6, a2c__gamma=0.5, a2c__hidden=[8], steps=2_048)
    said = starling("resume", run, "--quiet")
    assert said.code == 0
    for name, old, new in (("seed", 5, 6), ("a2c.gamma", 0.98, 0.5), ("steps", 4096, 2048)):
        assert f"starling: config.yaml was edited: {name} was {old} when the run began and is {new} now\n" in said.err
    assert "hidden" not in said.err
    assert summary(run)["env_steps"] == 2_048
    assert summary(run)["seed"] == 6
    after = manifest(run)
    assert after["resume_exact"] is False
    assert "config.yaml was edited" in after["resume_reason"]
    assert "a2c.gamma" in after["resume_reason"]
    assert after["settings"]["seed"] == 5, "what the run began with"


def test_a_setting_that_was_taken_out_counts_as_what_is_used_instead(starling, run):
    config = yaml.safe_load((run / "config.yaml").read_text())
    del config["a2c"]["rollout"]
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    assert "a2c.rollout was 16 when the run began and is 8 now" in starling("resume", run, "--quiet").err


def test_settings_that_change_nothing_that_is_learned_may_be_edited(starling, run, interrupted):
    edit(run, eval_episodes=1, keep_checkpoints=5, out="elsewhere", quiet=True, preset="a2c-cartpole")
    said = starling("resume", run)
    assert (said.code, said.err) == (0, "")
    assert manifest(run)["resume_exact"] is True
    assert summary(run)["eval_episodes"] == 1
    assert summary(run)["parameter_hash"] == summary(interrupted / "whole")["parameter_hash"]


def test_a_run_once_gone_on_with_otherwise_stays_inexact(starling, run):
    edit(run, seed=6, env="tests.experiments.toys:Faulty-raises-v0")
    assert starling("resume", run, "--quiet").code == 1
    edit(run, seed=5, env="CartPole-v1")
    assert starling("resume", run, "--quiet").err == ""
    assert manifest(run)["resume_exact"] is False


def test_a_manifest_of_a_run_without_its_settings_is_none(starling, run):
    text = (run / "manifest.json").read_text()
    (run / "manifest.json").write_text(text.replace('"settings": {', '"settings": 5, "others": {'))
    said = starling("resume", run)
    assert said.code == 2
    assert "manifest.json" in said.err
