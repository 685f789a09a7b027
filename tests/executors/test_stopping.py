"""Ctrl-C on the real command line, with roles in processes: one is patient, two are not."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.executors.test_processes import alive
from tests.experiments.commands import ROOT, finish, launch, summary


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
    left = [int(pid) for pid in said.stdout.split()]
    assert left
    until = time.monotonic() + 20
    while left and time.monotonic() < until:
        time.sleep(0.1)
        left = [pid for pid in left if alive(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


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


def test_the_second_does_not_wait_for_a_role_that_does_not_come(running):
    process, run, pids = running
    os.kill(pids["learner-0"], signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    time.sleep(2)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert code == 130
    assert "Traceback" not in err
    assert summary(run)["status"] == "interrupted"
    assert not [pid for pid in pids.values() if alive(pid)]
