"""Notes of the call that is under way: what they say of a process that was killed in it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from starling.core.errors import EnvError
from starling.envs import GymEnvs, make
from starling.envs.step_note import NOTE, EnvCall, StepNote, call_under_way, read_note

from .broken import Good
from .pooled import Seeded

ROOT = Path(__file__).parents[2]
KILLED = """
import sys, numpy as np
from pathlib import Path
from starling.envs import make
from tests.envs.pooled import Seeded
fault, wanted, workers, note = sys.argv[1:]
settings = {"workers": int(workers), "step_note": Path(note), "max_episode_steps": 7}
envs = make(Seeded, 4, 0, fault=fault, wanted=int(wanted), **settings)
envs.reset()
for _ in range(20):
    envs.step(np.zeros((4, 1), np.float32))
"""


def seeds_of(row, episodes):
    """The seeds of a row's first episodes, which have seven steps."""
    with make(Seeded, 4, 0, fault="", wanted=-1, max_episode_steps=7) as envs:
        envs.reset()
        found = [envs.state()["envs"][row]["seed"]]
        while len(found) < episodes:
            for _ in range(7):
                envs.step(np.zeros((4, 1), np.float32))
            found.append(envs.state()["envs"][row]["seed"])
    return found


@pytest.mark.parametrize("workers", [0, 2])
def test_a_process_that_crashed_in_a_step_left_a_note_of_it(workers, tmp_path):
    seed = seeds_of(1, 3)[2]
    arguments = [sys.executable, "-c", KILLED, "step crashes", str(seed), str(workers), str(tmp_path / "note")]
    ended = subprocess.run(arguments, cwd=ROOT, capture_output=True)
    assert ended.returncode == -signal.SIGSEGV, ended.stderr
    assert read_note(tmp_path / "note") == EnvCall("step", 1, seed, 3)


def test_a_process_that_crashed_in_a_reset_left_a_note_of_it(tmp_path):
    seed = seeds_of(3, 2)[1]
    arguments = [sys.executable, "-c", KILLED, "reset crashes", str(seed), "0", str(tmp_path / "note")]
    ended = subprocess.run(arguments, cwd=ROOT, capture_output=True)
    assert ended.returncode == -signal.SIGSEGV, ended.stderr
    call = read_note(tmp_path / "note")
    assert str(call) == f"a reset of environment 3 (episode seed {seed})"


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("fault", ["step crashes", "reset crashes"])
def test_a_worker_that_crashed_is_told_with_environment_seed_and_step(fault, asynchronous):
    seed = seeds_of(3, 2)[1]
    call = f"a step of environment 3 (episode seed {seed}, step 3 of the episode)"
    if fault == "reset crashes":
        call = f"a reset of environment 3 (episode seed {seed})"
    settings = {"workers": 2, "fault": fault, "wanted": seed, "max_episode_steps": 7}
    ready = {"asynchronous": True, "batch": 4} if asynchronous else {}
    with pytest.raises(EnvError) as caught:
        (play_ready if asynchronous else play)(make(Seeded, 4, 0, **ready, **settings))
    worker = 1 if asynchronous else 0  # of those beside this process
    assert f"Seeded: worker {worker} with environments 2 to 3 was killed by SIGSEGV in {call}; " in str(caught.value)
    assert "Native code that the environment calls has crashed" in str(caught.value)


def play(envs):
    with envs:
        envs.reset()
        for _ in range(20):
            envs.step(np.zeros((4, 1), np.float32))


def play_ready(envs):
    with envs:
        envs.reset()
        for _ in range(20):
            rows, _ = envs.recv()
            envs.send(rows, np.zeros((4, 1), np.float32))


class Looking(gym.Env):
    """Keeps what the note says in the middle of each call."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, rows: np.ndarray, found: list, length: int) -> None:
        self.rows, self.found, self.length = rows, found, length

    def look(self):
        self.found.append(call_under_way(self.rows, 10))
        return np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):
        self.left = self.length
        return self.look(), {}

    def step(self, action):
        self.left -= 1
        return self.look(), 0.0, self.left == 0, False, {}


def test_the_note_is_right_in_every_call_and_empty_between_them():
    rows, found = np.zeros((2, NOTE), np.int64), []
    lengths = iter([2, 3])
    envs = GymEnvs(lambda: Looking(rows, found, next(lengths)), 2, 0, "Looking", first=10)
    envs.reset()
    envs.step([0, 0])
    envs.keep(StepNote.into(rows))
    found.clear()
    seeds = []
    for _ in range(3):
        seeds.append([state["seed"] for state in envs.state()["envs"]])
        envs.step([0, 0])
        assert call_under_way(rows) is None
    (a0, b0), (a1, b1), (a2, _) = seeds
    assert found == [
        EnvCall("step", 10, a0, 2),
        EnvCall("step", 11, b0, 2),
        EnvCall("reset", 10, a1, 0),
        EnvCall("step", 10, a1, 1),
        EnvCall("step", 11, b1, 3),
        EnvCall("reset", 11, seeds[2][1], 0),
        EnvCall("step", 10, a2, 2),
        EnvCall("step", 11, seeds[2][1], 1),
        EnvCall("reset", 10, envs.state()["envs"][0]["seed"], 0),
    ]
    state = envs.state()
    envs.restore(state)
    found.clear()
    envs.step([0, 0])
    assert found[0] == EnvCall("step", 10, state["envs"][0]["seed"], 1)
    assert found[1] == EnvCall("step", 11, state["envs"][1]["seed"], 2)


def test_after_an_exception_no_call_is_under_way():
    rows = np.zeros((1, NOTE), np.int64)
    for fault in ("step raises", "end is none"):
        envs = GymEnvs(lambda fault=fault: Good(fault, at=1), 1, 0, "Good")
        envs.keep(StepNote.into(rows))
        envs.reset()
        with pytest.raises(EnvError):
            envs.step(np.zeros((1, 1), np.float32))
        assert call_under_way(rows) is None


def test_where_there_was_never_a_note_there_is_no_call(tmp_path):
    assert read_note(tmp_path / "none") is None
    StepNote.in_file(tmp_path / "note", 3)
    assert read_note(tmp_path / "note") is None


def test_a_vectorised_environment_keeps_no_note(tmp_path):
    with make("CartPole-v1", 8, 0, step_note=tmp_path / "note") as envs:
        envs.step(np.zeros(8, np.int64))
    assert read_note(tmp_path / "note") is None
