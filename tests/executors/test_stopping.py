"""Ctrl-C on the real command line, with roles in processes: one is patient, two are not."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time

import pytest

from tests.executors.test_processes import alive
from tests.experiments.commands import finish, launch, summary


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
