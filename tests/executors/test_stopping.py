"""Ctrl-C on the real command line, with roles in processes: what it asks for, and what is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from starling.records.checkpoints import Checkpoints
from tests.executors.test_processes import alive
from tests.experiments.commands import ROOT, TOYS, finish, launch, summary


@pytest.fixture
def running(tmp_path):
    """A run on processes that would go on for ever, its directory, and the processes of its roles."""
    run = tmp_path / "run"
    command = ["train", "--preset", "impala", "--steps", "100_000_000", "--backend", "torch", "--out", str(run)]
    process = launch([*command, "--checkpoint-every", "2_000", "--log-every", "1_000"])
    try:
        while not (run / "metrics.jsonl").exists() or not (run / "metrics.jsonl").read_text():
            assert process.poll() is None, finish(process)
            time.sleep(0.05)
        yield process, run, {role["role"]: role["pid"] for role in read_status(run)["roles"]}
    finally:
        process.kill()
        process.communicate()
        for pid in (role["pid"] for role in read_status(run)["roles"]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # a frozen one cannot go by itself


ABANDONED = """
import os, signal, sys, tempfile
from pathlib import Path
from starling.executors.processes import Supervisor
from tests.executors.programs import Watcher, program_of

scratch = Path(tempfile.mkdtemp())
supervisor = Supervisor(program_of("impala", sys.argv[1], scratch, backend="torch"), Watcher(), scratch, False)
supervisor.supervise()
print(*(child.process.pid for child in supervisor.children.values() if child.process is not None), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("formation", ["actor_learner", "sync", "central_inference"])
def test_roles_go_when_their_supervisor_dies_although_the_learner_is_done(formation):
    """Nobody waits for anything then: an actor's messages to a learner that is done go nowhere, at once."""
    command = [sys.executable, "-c", ABANDONED, formation]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert said.returncode == -signal.SIGKILL, said.stderr
    pids = [int(pid) for pid in said.stdout.split()]
    assert pids
    assert not left_of(pids)


def left_of(pids):
    """The processes that do not go within a while; they are ended."""
    left, until = list(pids), time.monotonic() + 20
    while left and time.monotonic() < until:
        left = [pid for pid in left if alive(pid)]
        time.sleep(0.05)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left


def read_status(run):
    return json.loads((run / "status.json").read_text())


def test_the_first_ends_every_role_in_order(running):
    process, run, pids = running
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert code == 130
    assert "Traceback" not in err
    assert f"starling resume {run}" in out
    assert summary(run)["status"] == "interrupted"
    assert not [pid for pid in pids.values() if alive(pid)]


def test_the_first_does_not_wait_for_a_learner_that_is_stopped(running):
    process, run, pids = running
    os.kill(pids["learner-0"], signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert code == 130
    assert "interrupted: learner-0 is stopped by a signal" in err
    assert "Traceback" not in err
    assert summary(run)["status"] == "interrupted"
    assert not [pid for pid in pids.values() if alive(pid)]


def test_the_first_saves_although_every_actor_is_stopped(running):
    process, run, pids = running
    for role, pid in pids.items():
        if role.startswith("actor"):
            os.kill(pid, signal.SIGSTOP)
    time.sleep(1.0)  # until the learner has nothing left to learn from
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert code == 130, err
    assert f"starling resume {run}" in out
    assert summary(run)["status"] == "interrupted"
    meta = Checkpoints(run / "checkpoints").load()[1]
    assert meta["step"] == summary(run)["env_steps"]
    assert not [pid for pid in pids.values() if alive(pid)]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_a_run_in_one_process_after_a_checkpoint(sent, tmp_path):
    run = tmp_path / "run"
    settings = ["--a2c.hidden", "4", "--preset", "none", "--backend", "torch", "--log-every", "500"]
    process = launch(["train", "--algo", "a2c", "--steps", "100_000_000", "--out", str(run), *settings])
    while not (run / "metrics.jsonl").exists() or not (run / "metrics.jsonl").read_text():
        assert process.poll() is None, finish(process)
        time.sleep(0.05)
    process.send_signal(sent)
    code, _, err = finish(process)
    assert code == 130, err
    assert Checkpoints(run / "checkpoints").load()[1]["step"] == summary(run)["env_steps"]


def test_the_first_ends_a_run_whose_environment_hangs(tmp_path):
    run = tmp_path / "run"
    settings = ["--a2c.hidden", "4", "--a2c.envs", "1", "--preset", "none", "--backend", "torch", "--log-every", "50"]
    process = launch(["train", "--algo", "a2c", "--env", f"{TOYS}:Hanging-v0", "--out", str(run), *settings])
    while not (run / "metrics.jsonl").exists() or 'env_steps": 250' not in (run / "metrics.jsonl").read_text():
        assert process.poll() is None, finish(process)
        time.sleep(0.05)
    time.sleep(0.5)  # it hangs by now
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert code == 130
    assert "interrupted: a step of an environment does not end" in err
    assert summary(run)["status"] == "interrupted"


def test_helpers_that_an_environment_has_forked_go_with_its_role(tmp_path, monkeypatch):
    """A helper holds the pipe of its role's reports, too: nobody may wait for it to be closed."""
    helpers = tmp_path / "helpers"
    monkeypatch.setenv("HELPERS", str(helpers))
    settings = ["--a2c.hidden", "4", "--a2c.envs", "2", "--preset", "none", "--backend", "torch"]
    command = ["train", "--algo", "a2c", "--env", f"{TOYS}:Helped-v0", "--formation", "actor_learner", "--max-lag", "0"]
    process = launch(
        [*command, "--steps", "100_000_000", "--out", str(tmp_path / "run"), "--log-every", "100", *settings]
    )
    run = tmp_path / "run"
    while not (run / "metrics.jsonl").exists() or not (run / "metrics.jsonl").read_text():
        assert process.poll() is None, finish(process)
        time.sleep(0.05)
    first = len(helpers.read_text().split())
    os.kill(next(role["pid"] for role in read_status(run)["roles"] if role["role"] == "actor-1"), signal.SIGKILL)
    while len(helpers.read_text().split()) == first:  # another actor takes its place
        assert process.poll() is None, finish(process)
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert code == 130, err
    assert not left_of(map(int, helpers.read_text().split()))


def test_roles_die_with_their_supervisor_even_in_an_environment_that_hangs(tmp_path):
    run = tmp_path / "run"
    command = ["train", "--algo", "a2c", "--env", f"{TOYS}:Hanging-v0", "--formation", "sync", "--preset", "none"]
    settings = ["--a2c.hidden", "4", "--a2c.envs", "2", "--backend", "torch", "--log-every", "50"]
    process = launch([*command, "--out", str(run), *settings])
    while not (run / "metrics.jsonl").exists() or not (run / "metrics.jsonl").read_text():
        assert process.poll() is None, finish(process)
        time.sleep(0.05)
    pids = [role["pid"] for role in read_status(run)["roles"]]
    time.sleep(1.0)
    process.kill()
    process.communicate()
    assert not left_of(pids)


def test_what_lies_in_the_current_folder_is_no_module(tmp_path, monkeypatch):
    """A file that is called like one would run, whoever put it there."""
    canary = tmp_path / "canary"
    for name in ("yaml", "numpy", "json"):
        (tmp_path / f"{name}.py").write_text(
            f"open({str(canary)!r}, 'w').close()\nraise SystemExit('{name} of a stranger')\n"
        )
    monkeypatch.chdir(tmp_path)
    command = [Path(sys.executable).with_name("starling"), "train", "--algo", "a2c", "--formation", "sync", "--quiet"]
    settings = ["--steps", "200", "--a2c.hidden", "4", "--eval-episodes", "1", "--preset", "none", "--env-workers", "2"]
    said = subprocess.run([*command, *settings], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    assert not canary.exists()
