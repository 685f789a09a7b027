"""``starling doctor`` and ``starling advise`` on real runs, dead and alive."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import time

import pytest

from starling.formations import form
from starling.records.lock import RunLock
from tests.experiments.commands import TOYS, finish, launch
from tests.insight.statuses import actors_and_learner

TINY = ["--a2c.hidden", "4", "--a2c.envs", "2", "--a2c.rollout", "8", "--quiet", "--eval-episodes", "1"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A small run in one process."""
    from starling.cli.main import main

    run = tmp_path_factory.mktemp("runs") / "run"
    args = ["--algo", "a2c", "--env", f"{TOYS}:Toy-v0", "--steps", "64", "--log-every", "16", "--out", str(run)]
    assert main(["train", *args, *TINY]) == 0
    return run


@pytest.fixture
def run(finished, tmp_path):
    """A copy of it, to spoil."""
    return shutil.copytree(finished, tmp_path / "run")


def with_status(run, **changes):
    status = {**actors_and_learner((83, 17), (39, 61, 0)), "time": time.time(), **changes}
    (run / "status.json").write_text(json.dumps(status))


def test_a_run_in_one_process_is_told_from_its_metrics(starling, run):
    said = starling("doctor", run)
    assert said.code == 0
    assert f"a2c on {TOYS}:Toy-v0, single: finished after 64 steps" in said.out
    assert "nobody waits" in said.out
    found = json.loads(starling("doctor", run, "--json").out)
    assert found["alive"] is False
    assert found["findings"][0]["subject"] == "status"


def test_a_dead_run_shows_its_roles_edges_waits_and_what_to_change(starling, run):
    with_status(run)
    said = starling("doctor", run, "--watch")  # a dead run is looked at once
    assert said.code == 0
    for text in ("learner-0  83 %", "actor-1", "experience  queue", "actor → learner", "9.0/s", "2 of 2"):
        assert text in said.out
    assert "restarts  none" in said.out
    assert "slowest   learner-0, at work 83 %" in said.out
    assert "▲ learner is the bottleneck: 83 % busy, actors blocked 61 % on `experience`" in said.out
    assert "averages of the whole run" in said.out


def test_many_roles_share_a_line(starling, run):
    status = actors_and_learner((83, 17), (39, 61, 0))
    status["roles"] += [{**status["roles"][1], "role": f"actor-{i}"} for i in range(2, 100)]
    with_status(run, roles=status["roles"])
    said = starling("doctor", run)
    assert "actor × 100" in said.out
    assert len(said.out.splitlines()) < 30


def test_a_run_that_died_without_a_word_is_told_as_such(starling, run):
    with_status(run)
    (run / "summary.json").unlink()
    (run / ".lock.json").write_text(json.dumps({"pid": 1, "host": os.uname().nodename, "since": "then"}))
    said = starling("doctor", run)
    assert "dead: no process holds it, and it left no word of its end" in said.out
    assert f"starling resume {run}" in said.out


def test_a_run_that_somebody_holds_is_alive(starling, run):
    with_status(run)
    lock = RunLock(run)
    try:
        said = starling("doctor", run, "--seconds", "0")
        assert "running for 100 s, 64 of 64 steps" in said.out
        assert "all 100 s so far" in said.out
    finally:
        lock.release()
    assert "finished" in starling("doctor", run).out


def test_the_log_of_a_lost_role_is_shown(starling, run):
    status = actors_and_learner((83, 17), (39, 61, 0))
    status["roles"][1]["restarts"] = 4
    with_status(run, roles=status["roles"])
    (run / "logs").mkdir(exist_ok=True)
    (run / "logs" / "actor-0.log").write_text("\n".join(f"line {i}" for i in range(5000)) + "\nthe wheel came off\n")
    said = starling("doctor", run)
    assert "✗ actor-0 was lost 4 times" in said.out
    assert "    | the wheel came off" in said.out
    assert "line 100\n" not in said.out


@pytest.mark.parametrize("spoilt", ["{", "[1]", "{}", "\x00"])
def test_a_spoilt_status_is_refused(starling, run, spoilt):
    (run / "status.json").write_text(spoilt)
    said = starling("doctor", run)
    assert said.code == 2
    assert "status.json" in said.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["doctor", "none"], "unknown run 'none'"),
        (["doctor"], "RUN"),
        (["doctor", "none", "--seconds", "-1"], "seconds=-1"),
        (["advise", "--algo", "pqo"], "Did you mean 'ppo'?"),
        (["advise", "--env", "CartPol-v1"], "Did you mean 'CartPole-v1'?"),
        (["advise", "--seconds", "0"], "seconds=0"),
        (["advise", "--algo", "sac", "--env", "CartPole-v1"], "sac needs a vector of bounded"),
    ],
)
def test_a_request_that_cannot_be_met_exits_with_2(starling, args, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = starling(*args)
    assert said.code == 2
    assert message in said.err


def test_a_live_run_of_several_processes_is_explained(starling, tmp_path):
    """The real thing: watched while it runs, then killed with all its roles."""
    run = tmp_path / "run"
    formation = ["--formation", "async_gradients", "--actors", "1", "--steps", "100000000"]
    process = launch(["train", "--algo", "a2c", "--env", "CartPole-v1", "--out", str(run), *formation, *TINY])
    try:
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline and process.poll() is None:
            found = json.loads(starling("doctor", run, "--json", "--seconds", "0").out) if _begun(run) else {}
            if any(edge["sent"] > 5 for edge in found.get("edges", [])):
                break
            time.sleep(0.2)
        assert process.poll() is None, finish(process)
        said = starling("doctor", run, "--seconds", "1.2")
        assert "async_gradients: running for" in said.out
        assert "shares and rates are of the last" in said.out
        assert "gradients  queue" in said.out
        assert "worker-0" in said.out
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert "dead: no process holds it" in starling("doctor", run).out
    finally:
        process.kill()
        process.communicate()


def _begun(run) -> bool:
    return (run / "status.json").exists() and (run / "manifest.json").exists()


def test_advise_times_the_parts_and_recommends_a_command(starling, tmp_path):
    (tmp_path / "run.yaml").write_text("a2c: {hidden: [8], envs: 2, rollout: 8}\npreset: none\n")
    args = ["--algo", "a2c", "--env", f"{TOYS}:Toy-v0", "--seconds", "0.2", "--config", tmp_path / "run.yaml"]
    said = starling("advise", *args)
    assert said.code == 0
    for text in ("environment step", "inference", "update", "transport of a chunk", "estimated", "recommended: "):
        assert text in said.out
    assert f"starling train --algo a2c --env {TOYS}:Toy-v0" in said.out
    found = json.loads(starling("advise", *args, "--json").out)
    from starling.cli.train import parse

    wanted = parse(shlex.split(found["command"])[2:])  # what is recommended can be run
    form(wanted.options.formation, wanted.counts)
    assert wanted.algorithm.hidden == (8,)
    assert wanted.options.formation == found["option"]["formation"]
    assert {timed["part"] for timed in found["timed"]} == {
        *("env", "inference", "acting", "update", "transport"),
    }
    assert "actor_learner" not in {option["formation"] for option in found["options"]}, "a2c may not lag"


def test_counts_in_a_file_that_the_recommended_formation_ignores_are_unset(tmp_path):
    from starling.cli.advise import AdviseArguments, _also

    plain = AdviseArguments(algo="impala", env="CartPole-v1")
    assert _also(plain, "single") == "", "a preset's counts are for its own formation alone"
    file = tmp_path / "my.yaml"
    file.write_text("preset: apex-dqn\nbuffers: 2\n")
    given = AdviseArguments(algo="dqn", env="CartPole-v1", config=str(file))
    assert _also(given, "sync") == f" --config {file} --buffers None"
    assert _also(given, "apex") == f" --config {file}"
