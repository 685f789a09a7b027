"""A run reports and saves at the same steps, however often it is put back and goes on."""

from __future__ import annotations

import pytest

from starling.core.effects import Checkpoint, Report
from starling.roles.run_counters import RunCounters, RunLength

LENGTH = RunLength(total=1_000, report_every=100, checkpoint_every=250)


def advance(counters, stride, until):
    """What the counters ask for on the way to a step, a stride at a time."""
    asked = []
    while counters.steps < until:
        counters.count(stride)
        asked += counters.report(lambda: ({}, {}), counters.state)
    return asked


def reported(effects):
    return [effect.steps for effect in effects if isinstance(effect, Report)]


def restored(state):
    counters = RunCounters(LENGTH)
    counters.restore(state)
    return counters


@pytest.mark.parametrize("stride", [1, 24, 64, 100, 130])
@pytest.mark.parametrize("at", [50, 150, 333, 999])
def test_a_restored_run_reports_at_the_steps_of_one_that_was_not_interrupted(stride, at):
    whole = reported(advance(RunCounters(LENGTH), stride, 1_000))
    cut = RunCounters(LENGTH)
    before = advance(cut, stride, at)
    after = advance(restored(cut.state()), stride, 1_000)
    assert reported(before + after) == whole
    assert whole[-1] == whole[-2] + stride * -(-100 // stride) or whole[-1] >= 1_000


def test_an_interruption_is_saved_and_told_but_delays_no_report():
    counters = RunCounters(LENGTH)
    advance(counters, 10, 150)
    counters.stop = True
    told, saved = counters.report(lambda: ({}, {}), counters.state, last=True)
    assert (told.steps, told.values["interrupted"]) == (150, 1)
    assert isinstance(saved, Checkpoint)
    assert saved.steps == 150
    again = restored(counters.state())
    assert reported(advance(again, 10, 250)) == [200]


def test_an_interruption_when_a_report_has_just_been_made_is_told_by_that():
    counters = RunCounters(LENGTH)
    (report,) = (effect for effect in advance(counters, 10, 100) if isinstance(effect, Report))
    assert "interrupted" not in report.values
    (saved,) = counters.report(lambda: ({}, {}), counters.state, last=True)
    assert isinstance(saved, Checkpoint)


def test_the_end_of_the_run_is_reported_and_saved_once():
    counters = RunCounters(LENGTH)
    asked = advance(counters, 30, 1_000)
    asked += counters.report(lambda: ({}, {}), counters.state, last=True)
    assert [effect.steps for effect in asked[-2:]] == [1_020, 1_020]
    assert [type(effect) for effect in asked[-2:]] == [Report, Checkpoint]
    assert reported(asked).count(1_020) == 1


def test_the_first_report_of_a_stretch_says_where_it_began():
    counters = RunCounters(LENGTH)
    first, second = (effect for effect in advance(counters, 50, 200) if isinstance(effect, Report))
    assert first.values["began_at"] == 0
    assert "began_at" not in second.values
    again = next(effect for effect in advance(restored(counters.state()), 50, 400) if isinstance(effect, Report))
    assert (again.steps, again.values["began_at"]) == (300, 200)
