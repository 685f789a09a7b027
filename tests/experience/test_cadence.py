"""When updates fall due, counted once."""

from __future__ import annotations

import pytest

from starling.experience.cadence import EachBatch, EverySteps, Round


def test_all_rounds_that_a_large_step_passes_fall_due_at_once():
    cadence = EverySteps(total=100, every=4)
    assert list(cadence.due(3)) == []
    assert [round.progress for round in cadence.due(16)] == [0.0, 0.04, 0.08, 0.12]
    assert list(cadence.due(16)) == []
    assert list(cadence.due(20)) == [Round(0.16, 1)]


@pytest.mark.parametrize("stride", [1, 3, 4, 16, 50])
def test_the_number_of_updates_does_not_depend_on_how_steps_arrive(stride):
    cadence, updates, steps = EverySteps(total=4_000, every=4, updates=2, starts=400), 0, 0
    while steps < 4_000:
        steps = min(4_000, steps + stride)
        updates += sum(round.updates for round in cadence.due(steps))
    assert updates == 2 * (1_000 - 99)  # at 400, 404, …, 4000


def test_what_falls_due_before_there_is_something_to_learn_from_is_skipped():
    cadence = EverySteps(total=100, every=10)
    assert list(cadence.due(35, ready=False)) == []
    assert [round.progress for round in cadence.due(50)] == [0.3, 0.4]


def test_workers_that_learn_from_their_own_steps_share_the_rounds_of_a_run():
    """Each of four counts its steps times four, and has a round for every ``every`` steps of its own."""
    rounds = 0
    for _ in range(4):
        cadence = EverySteps(total=1_000, every=5 * 4, starts=200)
        rounds += sum(len(list(cadence.due(4 * own))) for own in range(1, 251))
    assert rounds == 4 * (50 - 9)
    single = EverySteps(total=1_000, every=5, starts=200)
    assert abs(len(list(single.due(1_000))) - rounds) <= 4


def test_a_batch_has_the_progress_of_the_run_when_it_began():
    cadence = EachBatch(total=100)
    progress = [round.progress for steps in (32, 64, 96, 128) for round in cadence.due(steps)]
    assert progress == [0.0, 0.32, 0.64, 0.96]


@pytest.mark.parametrize("make", [lambda: EachBatch(100), lambda: EverySteps(100, 10)])
def test_a_restored_cadence_goes_on_where_it_was(make):
    one, other = make(), make()
    list(one.due(30))
    other.restore(one.state())
    assert list(one.due(50)) == list(other.due(50))
