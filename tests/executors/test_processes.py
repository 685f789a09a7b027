"""Roles in processes: crashed ones come back, nothing is lost or doubled, nothing is left behind."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from starling.core.errors import EnvError, RunError
from starling.core.machine import Heartbeat
from starling.executors.processes import Supervisor
from starling.executors.recording import replay
from starling.formations import RoleId
from starling.records.hashes import parameter_hash
from tests.executors.programs import Watcher, program_of, trained

SLOW = pytest.mark.slow


class Killer(Watcher):
    """Kills roles of a kind, one after another, as soon as the run has gone on since the last time."""

    def __init__(self, kind, times, sign=signal.SIGKILL):
        super().__init__()
        self.kind, self.left, self.sign, self.at, self.pids = kind, times, sign, 0, set()

    def attach(self, supervisor):
        self.supervisor = supervisor

    def stopping(self, role, steps):
        self.pids |= {c.process.pid for c in self.supervisor.children.values() if c.process is not None}
        if self.left and steps > self.at + 300:
            victims = [c for r, c in self.supervisor.children.items() if r.kind == self.kind and c.process is not None]
            if victims:
                victim = victims[self.left % len(victims)].process.pid
                os.kill(victim, self.sign)
                self.left, self.at = self.left - 1, steps
        return False


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def supervised(program, watcher, tmp_path):
    supervisor = Supervisor(program, watcher, tmp_path / "scratch", restore=False)
    watcher.attach(supervisor)
    (tmp_path / "scratch").mkdir()
    try:
        return supervisor.supervise()
    finally:
        supervisor.close()


@pytest.mark.parametrize(
    ("algo", "formation", "kind", "times"),
    [
        ("impala", "actor_learner", "actor", 3),
        ("dqn", "apex", "buffer", 2),
        ("a2c", "allreduce", "learner", 2),
        pytest.param("impala", "actor_learner", "learner", 1, marks=SLOW),
        pytest.param("impala", "central_inference", "inference", 2, marks=SLOW),
        pytest.param("a2c", "sharded_ps", "server", 1, marks=SLOW),
        pytest.param("a2c", "sync", "actor", 1, marks=SLOW),
    ],
)
def test_a_killed_role_comes_back_and_the_run_ends_well(algo, formation, kind, times, tmp_path):
    program = program_of(algo, formation, tmp_path / "run", steps=6_000, checkpoint_every=200)
    killer = Killer(kind, times)
    results = supervised(program, killer, tmp_path)
    assert program.weights(results)
    assert killer.left == 0
    restarts = {role["role"]: role["restarts"] for role in killer.statuses[-1]["roles"]}
    assert sum(count for role, count in restarts.items() if role.startswith(kind)) == times
    last = [values for _, steps, values in killer.reports if steps >= 6_000][-1]
    if kind == "actor":
        assert (last["missing_chunks"], last["doubled_chunks"]) == (0, 0)
    if program.formation.joined(kind):
        assert len({parameter_hash(weights) for weights in results.values()}) == 1
    assert not [pid for pid in killer.pids if alive(pid)]


def test_the_first_interruption_ends_every_role_after_a_checkpoint(tmp_path):
    program = program_of("impala", "actor_learner", tmp_path, steps=10_000_000)
    watcher = Watcher(stop_after=1_000)
    supervisor = Supervisor(program, watcher, tmp_path, restore=False)
    try:
        results = supervisor.supervise()
    finally:
        supervisor.close()
    assert program.weights(results)
    steps = program.checkpoints(next(iter(results))).latest()
    assert steps is not None
    assert 1_000 <= steps < 10_000_000


def test_an_environment_that_raises_ends_the_run_with_its_own_traceback(tmp_path):
    faulty = "tests.experiments.toys:Faulty-raises-v0"
    program = program_of("impala", "actor_learner", tmp_path, steps=100_000, env=faulty, env_options={"episode": 2})
    supervisor = Supervisor(program, Watcher(), tmp_path, restore=False)
    try:
        with pytest.raises(EnvError, match=r"(?s)actor-\d: .*Faulty.*the wheel came off.*in step"):
            supervisor.supervise()
    finally:
        supervisor.close()


def test_a_role_that_crashes_in_an_environment_says_in_which_step_of_which(tmp_path):
    settings = {"envs": 2, "rollout": 8}
    env = "tests.experiments.toys:Crashing-v0"
    program = program_of("a2c", "sync", tmp_path / "run", settings=settings, env=env, actors=1, backend="torch")
    watcher = Killer("actor", 0)
    with pytest.raises(RunError) as caught:
        supervised(program, watcher, tmp_path)
    where = r"killed by SIGSEGV in a step of environment 0 \(episode seed \d+, step 4 of the episode\)"
    assert re.search(where, str(caught.value))
    assert re.search(where, (tmp_path / "run" / "logs" / "actor-0.log").read_text(encoding="utf-8"))


RECORDED = [
    ("dqn", "apex", {"actors": 4, "evaluators": 1}),
    ("impala", "central_inference", {"max_lag": 8}),
    pytest.param("impala", "actor_learner", {"actors": 4}, marks=SLOW),
    pytest.param("a2c", "sharded_ps", {"actors": 4}, marks=SLOW),
]


@pytest.mark.parametrize(("algo", "formation", "counts"), RECORDED)
def test_a_recorded_run_replays_to_the_same_parameters(algo, formation, counts, tmp_path):
    program = program_of(algo, formation, tmp_path / "run", steps=3_000, record=True, executor="processes", **counts)
    watcher = Watcher()
    supervisor = Supervisor(program, watcher, tmp_path, restore=False)
    try:
        results = supervisor.supervise()
    finally:
        supervisor.close()
    assert max(values.get("updates", 0) for _, _, values in watcher.reports) >= 80
    again = replay(program, Watcher(), program.record)
    assert parameter_hash(program.weights(again)) == parameter_hash(program.weights(results))


def test_a_frozen_role_holds_the_others_up_and_they_go_on_when_it_thaws(tmp_path):
    program = program_of("dqn", "apex", tmp_path / "run", steps=5_000)
    killer = Killer("buffer", 1, signal.SIGSTOP)
    begun = time.monotonic()

    def thaw():
        while killer.left and time.monotonic() < begun + 60:
            time.sleep(0.05)
        time.sleep(1.5)
        os.kill(killer.supervisor.children[RoleId("buffer", 0)].process.pid, signal.SIGCONT)

    thread = threading.Thread(target=thaw)
    thread.start()
    results = supervised(program, killer, tmp_path)
    thread.join()
    assert program.weights(results)
    assert all(role["restarts"] == 0 for role in killer.statuses[-1]["roles"])


def test_a_role_without_a_sign_of_life_is_started_again(tmp_path):
    program = program_of("dqn", "apex", tmp_path / "run", steps=3_000, heartbeat=2.0)
    killer = Killer("buffer", 1, signal.SIGSTOP)
    assert program.weights(supervised(program, killer, tmp_path))
    restarts = {role["role"]: role["restarts"] for role in killer.statuses[-1]["roles"]}
    assert restarts == {**dict.fromkeys(restarts, 0), "buffer-0": 1}
    assert "no sign of life for" in (tmp_path / "run" / "logs" / "buffer-0.log").read_text()


def test_work_is_a_sign_of_life_and_sleep_is_none():
    heart, pid, begun, used = Heartbeat(), os.getpid(), time.monotonic(), time.process_time()
    assert heart.silence(pid, 0.0, begun) == 0.0
    while time.process_time() < used + 0.1:
        pass
    assert heart.silence(pid, 0.0, begun + 10) == 0.0
    assert heart.silence(pid, 1.0, begun + 20) == 0.0
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        time.sleep(1)
        assert heart.silence(sleeper.pid, 0.0, begun + 30) == 0.0
        assert heart.silence(sleeper.pid, 0.0, begun + 40) == 10.0
        assert heart.silence(sleeper.pid, 5.0, begun + 50) == 0.0
    finally:
        sleeper.kill()
        sleeper.wait()


def test_an_actor_of_a_small_network_imports_neither_jax_nor_torch_nor_numba(tmp_path):
    code = """
import sys
from starling.experiments.config import resolve
from starling.experiments.program import Program
from starling.executors import worker
from starling.executors.base import Start
from starling.core.effects import Newest, Put
from starling.formations import RoleId
program = Program(resolve({"algo": "ALGO", "env": "CartPole-v1", "formation": "FORMATION"}))
code = program.role(RoleId("actor", 0), Start())
newest = Newest({"params": program.acting_part(program.initial), "steps": 0}, 0, 1)
code.send(None)
code.send(newest)  # it joins, and asks for weights once more
effect = code.send(newest._replace(value=None))
assert isinstance(effect, Put), effect
print([name for name in ("jax", "torch", "numba") if name in sys.modules])
"""
    for algo, formation in (("impala", "actor_learner"), ("dqn", "apex")):
        script = code.replace("ALGO", algo).replace("FORMATION", formation)
        said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=Path.cwd())
        assert said.stdout.strip() == "[]", said.stderr


def test_roles_whose_descriptors_have_high_numbers_run():
    """``select`` fails from descriptor 1,024 on; a run of hundreds of roles gets there."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip("this machine allows no process more than a few files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, hard))
    held = []
    try:
        while not held or held[-1] < 1100:
            held.append(os.open(os.devnull, os.O_RDONLY))
        assert trained("a2c", "sync", "processes", steps=64, actors=2)
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
