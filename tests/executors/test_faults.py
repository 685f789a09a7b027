"""Five minutes of killed actors, lost servers, and half a minute of frozen ones: `make faults`."""

from __future__ import annotations

import os
import signal
import time

import pytest

from starling.executors.processes import Supervisor
from starling.formations import RoleId
from tests.executors.programs import Watcher, program_of

ACTORS, EVERY, LASTING = 8, 5.0, 300.0
STEADY = 10.0  # seconds until all roles have started


class Striker(Watcher):
    """Strikes an actor every ``every`` seconds, and ends the run after ``lasting`` seconds."""

    def __init__(self, every, lasting):
        super().__init__()
        self.every, self.lasting = every, lasting
        self.began, self.at, self.struck, self.marks = time.monotonic(), STEADY, [], []
        self.gaps: list[float] = []

    def stopping(self, role, steps):
        now = time.monotonic() - self.began
        self.marks.append((now, steps))
        if self.every and now >= self.at and now < self.lasting - 5:
            self.at = now + self.every
            child = self.supervisor.children[RoleId("actor", len(self.struck) % ACTORS)]
            if child.process is not None:
                os.kill(child.process.pid, signal.SIGKILL)
                self.struck.append((time.monotonic(), child, child.process.pid))
        self._look_for_those_who_came_back()
        return now >= self.lasting

    def _look_for_those_who_came_back(self):
        status = self.supervisor.role_status
        for strike in list(self.struck[len(self.gaps) :]):
            when, child, pid = strike
            line = status.line(child.role)
            back = child.process is not None and child.process.pid != pid and status.arrays["beat"][line] > when
            if not back:
                return
            self.gaps.append(time.monotonic() - when)

    def rate(self):
        """Steps a second after the start."""
        (t0, s0), (t1, s1) = next(mark for mark in self.marks if mark[0] >= STEADY), self.marks[-1]
        return (s1 - s0) / (t1 - t0)


def struck(every, lasting, tmp_path):
    settings = {"envs": 16, "rollout": 16}
    program = program_of("impala", "actor_learner", tmp_path / "run", 10**9, settings, actors=ACTORS)
    striker = Striker(every, lasting)
    supervisor = striker.supervisor = Supervisor(program, striker, tmp_path, restore=False)
    try:
        supervisor.supervise()
    finally:
        supervisor.close()
    return striker


@pytest.mark.slow
def test_killing_an_actor_every_five_seconds_costs_little_and_loses_nothing(tmp_path):
    (tmp_path / "calm").mkdir()
    (tmp_path / "rough").mkdir()
    calm = struck(0, 60.0, tmp_path / "calm")
    rough = struck(EVERY, LASTING, tmp_path / "rough")
    assert len(rough.struck) >= (LASTING - STEADY - 10) / EVERY
    last = [values for _, steps, values in rough.reports if steps >= 0][-1]
    assert (last["missing_chunks"], last["doubled_chunks"]) == (0, 0)
    print(f"calm {calm.rate():,.0f} steps/s, struck {rough.rate():,.0f}; back after {max(rough.gaps):.2f} s at most")
    assert max(rough.gaps) <= 3.0
    assert rough.rate() >= 0.8 * calm.rate()


class Blow(Watcher):
    """Does something to a role when it has taken ``after`` steps, and notes how long the run takes to go on."""

    def __init__(self, role, after, lasting=0.0):
        super().__init__()
        self.role, self.after, self.lasting = role, after, lasting
        self.pid, self.struck_at, self.healed_at, self.on_from, self.seconds = 0, 0.0, 0.0, None, None

    def stopping(self, role, steps):
        now, child = time.monotonic(), self.supervisor.children[self.role]
        if not self.struck_at:
            if steps >= self.after:
                self.pid, self.struck_at = child.process.pid, now
                os.kill(self.pid, signal.SIGSTOP if self.lasting else signal.SIGKILL)
            return False
        if not self.healed_at:
            if now >= self.struck_at + self.lasting:
                self.healed_at = now
                if self.lasting:
                    os.kill(self.pid, signal.SIGCONT)
            return False
        if self.on_from is None and self._is_back(child):
            self.on_from = steps
        if self.seconds is None and self.on_from is not None and steps > self.on_from:
            self.seconds = now - self.healed_at
        return self.seconds is not None and now >= self.healed_at + 15

    def _is_back(self, child):
        status = self.supervisor.role_status
        beat = status.arrays["beat"][status.line(child.role)]
        return child.process is not None and beat > self.healed_at and (self.lasting or child.process.pid != self.pid)


SERVERS = [
    ("impala", "actor_learner", "learner", {"max_lag": 4}),
    ("dqn", "apex", "buffer", {"buffers": 2}),
    ("a2c", "sharded_ps", "server", {"servers": 2}),
    ("impala", "central_inference", "inference", {"max_lag": 4}),
]


def blown(algo, formation, kind, options, lasting, tmp_path):
    envs = {"envs": 8}
    program = program_of(algo, formation, tmp_path / "run", 10**9, envs, actors=8, checkpoint_every=1_000, **options)
    blow = Blow(RoleId(kind, 0), 3_000, lasting)
    supervisor = blow.supervisor = Supervisor(program, blow, tmp_path, restore=False)
    try:
        assert program.weights(supervisor.supervise())
    finally:
        supervisor.close()
    told = [values for _, steps, values in blow.reports if steps >= 0]
    if "max_lag" in options:
        assert max(values["lag_max"] for values in told if "lag_max" in values) <= options["max_lag"]
    if lasting:  # a learner that goes on from a checkpoint sees what it took since then no more
        assert told[-1].get("missing_chunks", 0) == told[-1].get("doubled_chunks", 0) == 0
    print(f"{formation}: {kind} back, and the run going on, after {blow.seconds:.1f} s")
    return blow


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "formation", "kind", "options"), SERVERS)
def test_a_run_recovers_from_the_loss_of_a_server_within_ten_seconds(algo, formation, kind, options, tmp_path):
    assert blown(algo, formation, kind, options, 0.0, tmp_path).seconds <= 10.0


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "formation", "kind", "options"), SERVERS)
def test_a_server_may_be_frozen_for_half_a_minute(algo, formation, kind, options, tmp_path):
    blow = blown(algo, formation, kind, options, 30.0, tmp_path)
    assert blow.seconds <= 10.0
    assert all(role["restarts"] == 0 for role in blow.statuses[-1]["roles"])
