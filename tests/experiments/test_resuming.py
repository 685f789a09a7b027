"""A run that was cut off and resumed is the run that was not."""

from __future__ import annotations

import json
import shutil
import signal
import time
from functools import cache

import numpy as np
import pytest

from starling.cli.main import main
from starling.records.hashes import parameter_hash
from tests.experiments.commands import (
    TOYS,
    arguments,
    checkpoints,
    finish,
    launch,
    manifest,
    metrics,
    stop_at,
    summary,
)
from tests.experiments.programs import finish as finish_here
from tests.experiments.programs import program_of

FEW = {
    "a2c": {"envs": 2, "rollout": 8},
    "dqn": {"batch_size": 16, "learning_starts": 16},
    "ppo": {"envs": 2, "rollout": 8, "minibatch": 8, "epochs": 2},
    "sac": {"batch_size": 16, "learning_starts": 16},
}
STEPS = {"a2c": 8192, "dqn": 3072, "ppo": 8192, "sac": 2048}  # long enough to be killed on the way
OFTEN = ["--checkpoint-every", "256", "--log-every", "256"]


def assert_one_history(run, steps):
    rows = metrics(run)
    at = [row["env_steps"] for row in rows]
    assert at == sorted(set(at))
    assert at[-1] == steps
    assert all(np.diff([row["seconds"] for row in rows]) >= 0)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The directory of an algorithm's run that nothing disturbed."""

    @cache
    def run(algo):
        directory = tmp_path_factory.mktemp(algo) / "whole"
        assert main(arguments(algo, directory, STEPS[algo], *OFTEN, "--quiet")) == 0
        return directory

    return run


@pytest.mark.parametrize("algo", ["dqn", "ppo", "sac", "a2c"])
def test_a_killed_and_resumed_run_equals_an_uninterrupted_one(algo, uninterrupted, tmp_path):
    cut = tmp_path / "cut"
    whole = uninterrupted(algo)
    process = launch(arguments(algo, cut, STEPS[algo], *OFTEN))
    stop_at(process, cut, STEPS[algo] // 3, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert not (cut / "summary.json").exists()
    assert checkpoints(cut)[-1] < STEPS[algo], "killed too late to prove anything"
    finish(process)
    assert main(["resume", str(cut), "--quiet"]) == 0
    assert summary(cut)["parameter_hash"] == summary(whole)["parameter_hash"]
    for key in ("env_steps", "updates", "final_return", "status"):
        assert summary(cut)[key] == summary(whole)[key]
    assert manifest(cut)["resume_exact"] is True
    assert_one_history(cut, STEPS[algo])
    assert [row["episodes"] for row in metrics(cut)][-1] == [row["episodes"] for row in metrics(whole)][-1]


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "env"), [("dqn", "CartPole-v1"), ("ppo", "CartPole-v1"), ("sac", "Pendulum-v1")])
def test_a_preset_s_run_killed_half_way_equals_one_of_20_000_steps(algo, env, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    common = ["train", "--algo", algo, "--env", env, "--steps", "20_000", "--checkpoint-every", "2_000"]
    process = launch([*common, "--out", str(cut), "--log-every", "500"])
    stop_at(process, cut, 10_000, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    finish(process)
    assert 10_000 <= checkpoints(cut)[-1] < 20_000
    assert main(["resume", str(cut), "--quiet"]) == 0
    assert main([*common, "--out", str(whole), "--log-every", "500", "--quiet"]) == 0
    assert summary(cut)["parameter_hash"] == summary(whole)["parameter_hash"]


def test_ctrl_c_stops_after_a_checkpoint_and_resume_goes_on_to_the_same_end(uninterrupted, tmp_path, capsys):
    cut = tmp_path / "cut"
    whole = uninterrupted("ppo")
    process = launch(arguments("ppo", cut, STEPS["ppo"], *OFTEN))
    stop_at(process, cut, 1000, signal.SIGINT)
    code, out, err = finish(process)
    assert code == 130
    assert "Traceback" not in err
    assert f"starling resume {cut}" in out
    assert summary(cut)["status"] == "interrupted"
    assert checkpoints(cut)[-1] == summary(cut)["env_steps"] < STEPS["ppo"]
    capsys.readouterr()
    assert main(["resume", str(cut), "--quiet"]) == 0
    assert "finished" in summary(cut)["status"]
    assert summary(cut)["parameter_hash"] == summary(whole)["parameter_hash"]
    assert_one_history(cut, STEPS["ppo"])


@pytest.mark.parametrize("formation", ["single", "sync"])
def test_a_run_that_was_killed_before_it_saved_anything_begins_anew(formation, tmp_path, capsys):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    roles = [] if formation == "single" else ["--formation", formation, "--actors", "1", "--a2c.rollout", "16"]
    for run in (whole, cut):
        assert main(arguments("a2c", run, 256, "--quiet", *roles)) == 0
    for name in ("summary.json", "metrics.jsonl", "policy.json"):
        (cut / name).unlink(missing_ok=True)
    for name in ("checkpoints", "policy", "roles", "tensorboard"):
        shutil.rmtree(cut / name, ignore_errors=True)
    capsys.readouterr()
    assert main(["resume", str(cut), "--quiet"]) == 0
    assert "began anew" in capsys.readouterr().err
    assert summary(cut)["parameter_hash"] == summary(whole)["parameter_hash"]
    assert_one_history(cut, 256)


def test_the_record_of_a_run_that_is_resumed_stays_as_it_was(tmp_path, capsys):
    run = tmp_path / "run"
    roles = ["--formation", "actor_learner", "--max-lag", "0", "--actors", "2", "--record", "--preset", "none"]
    process = launch(arguments("a2c", run, 1_000_000, *OFTEN, *roles))
    stop_at(process, run, 512, signal.SIGINT)
    finish(process)
    recorded = {path.name: path.read_bytes() for path in (run / "record").iterdir()}
    assert any(recorded.values())
    process = launch(["resume", str(run)])
    stop_at(process, run, checkpoints(run)[-1] + 512, signal.SIGINT)
    finish(process)
    assert {path.name: path.read_bytes() for path in (run / "record").iterdir()} == {**recorded, "cut-short": b""}
    capsys.readouterr()
    assert main(["replay", str(run)]) == 1
    assert "was interrupted and resumed" in capsys.readouterr().err


def test_a_second_run_in_the_same_directory_is_refused_naming_the_process(tmp_path, capsys):
    run = tmp_path / "run"
    process = launch(arguments("ppo", run, 10_000_000, *OFTEN))
    try:
        while not checkpoints(run):
            assert process.poll() is None
            time.sleep(0.01)
        for args in (arguments("ppo", run, 4096), ["resume", str(run)]):
            assert main(args) == 2
            assert f"process {process.pid}" in capsys.readouterr().err
        assert main(["eval", str(run), "--episodes", "1", "--json"]) == 0  # looking is allowed
        assert len(json.loads(capsys.readouterr().out)["returns"]) == 1
    finally:
        process.kill()
        finish(process)


def test_a_finished_run_is_neither_overwritten_nor_resumed(tmp_path, capsys):
    run = tmp_path / "run"
    assert main(arguments("a2c", run, 64, "--quiet")) == 0
    before = summary(run)
    capsys.readouterr()
    assert main(arguments("a2c", run, 64, "--quiet")) == 2
    assert "finished run" in capsys.readouterr().err
    assert main(["resume", str(run)]) == 2
    assert "is finished" in capsys.readouterr().err
    assert summary(run) == before


def test_an_environment_that_chance_decides_is_told_in_the_manifest(tmp_path):
    run = tmp_path / "run"
    assert main(arguments("a2c", run, 64, "--quiet", "--env", f"{TOYS}:Chance-v0")) == 0
    assert manifest(run)["resume_exact"] is False
    assert "not deterministic" in manifest(run)["resume_reason"]
    good = tmp_path / "good"
    assert main(arguments("a2c", good, 64, "--quiet", "--env", f"{TOYS}:Toy-v0")) == 0
    assert manifest(good)["resume_exact"] is True


def test_the_configuration_of_a_run_gives_the_same_run_again(tmp_path):
    first, again = tmp_path / "first", tmp_path / "again"
    assert main(arguments("dqn", first, 512, "--quiet")) == 0
    assert main(["train", "--config", str(first / "config.yaml"), "--out", str(again)]) == 0
    assert summary(again)["parameter_hash"] == summary(first)["parameter_hash"]
    assert summary(again)["updates"] > 0


@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize("algo", ["dqn", "ppo", "sac", "a2c"])
def test_the_same_seed_gives_the_same_parameters_twice_and_another_seed_others(algo, backend):
    env, hashes = "Pendulum-v1" if algo == "sac" else "CartPole-v1", []
    for seed in (3, 3, 4):
        settings = {"env": env, "steps": 64, "seed": seed, "backend": backend, algo: {"hidden": [8], **FEW[algo]}}
        weights, heard = finish_here(program_of(algo=algo, **settings))
        assert heard.values["updates"] >= 3
        hashes.append(parameter_hash(weights))
    assert hashes[0] == hashes[1] != hashes[2]
