"""Learners that are joined go on from a checkpoint that all of them have, whoever crashed while saving."""

from __future__ import annotations

import shutil

import pytest

from starling.executors import get_executor
from starling.executors.simulated import Simulation
from starling.executors.simulated_faults import SimulatedFaults
from starling.formations import RoleId
from starling.records.hashes import parameter_hash
from tests.executors.programs import Watcher, program_of

LEARNERS = RoleId("learner", 0), RoleId("learner", 1)


class Keeping(Watcher):
    """Keeps checkpoints where the run does, and notes how far the learners were."""

    def __init__(self, program, stop_after=None):
        super().__init__(stop_after)
        self.program, self.heard = program, []

    def stopping(self, role, steps):
        self.heard.append((role, steps))
        return super().stopping(role, steps)

    def checkpoint(self, role, checkpoint):
        self.program.save(role, checkpoint, 0.0)


def allreduce(directory, **options):
    settings = {"steps": 600, "checkpoint_every": 64, "keep_checkpoints": 1, "backend": "torch"}
    return program_of("a2c", "allreduce", directory, **{**settings, **options})


def stopped(directory):
    """A run of two learners that was stopped, and their checkpoints."""
    program = allreduce(directory)
    get_executor("inline")(program, Keeping(program, stop_after=300), False)
    return [program.checkpoints(role) for role in LEARNERS]


@pytest.mark.parametrize("lagging", [0, 1])
def test_one_that_was_lost_before_it_saved_takes_the_other_back(tmp_path, lagging):
    checkpoints = stopped(tmp_path)
    earlier, newest = checkpoints[lagging].steps()
    shutil.rmtree(checkpoints[lagging].path(newest))
    assert [each.latest() for each in checkpoints] == [earlier, earlier]
    program = allreduce(tmp_path)
    watcher = Keeping(program)
    results = get_executor("inline")(program, watcher, True)
    assert {steps for _, steps in watcher.heard[:2]} == {earlier}
    assert len({parameter_hash(weights) for weights in results.values()}) == 1


def test_where_one_has_saved_nothing_all_begin_anew_and_forget_what_they_saved(tmp_path):
    checkpoints = stopped(tmp_path)
    shutil.rmtree(checkpoints[1].directory)
    program = allreduce(tmp_path)
    watcher = Keeping(program, stop_after=32)
    get_executor("inline")(program, watcher, True)
    assert {steps for _, steps in watcher.heard[:2]} == {0}
    assert checkpoints[0].steps() == checkpoints[1].steps()
    assert max(checkpoints[0].steps()) < 300


class Impatient(Watcher):
    """Fails a run that goes on for ever."""

    def checkpoint(self, role, checkpoint):
        super().checkpoint(role, checkpoint)
        assert len(self.checkpoints) < 200


def test_a_crash_between_the_last_checkpoints_of_two_learners_does_not_repeat_for_ever():
    rough = {"seed": 9, "crashes": 0.1, "freezes": 0.05, "loss": 0.2, "spread": 0.8, "restart": 0.5}
    program = allreduce(None, steps=200, checkpoint_every=50, simulation=rough)
    results = Simulation(program, Impatient(), SimulatedFaults.of(program.simulation)).run()
    assert len({parameter_hash(weights) for weights in results.values()}) == 1
