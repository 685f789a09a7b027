"""Five minutes of killed actors, and half a minute of a frozen server: `make faults`."""

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
        board = self.supervisor.board
        for strike in list(self.struck[len(self.gaps) :]):
            when, child, pid = strike
            line = board.line(child.role)
            back = child.process is not None and child.process.pid != pid and board.arrays["beat"][line] > when
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
