"""Asynchronous environments that step as if together: what a step says of rows that are ready, and of the others."""

from __future__ import annotations

import numpy as np
import pytest

from starling.envs import make
from starling.envs.ready_rows import ReadyRows
from tests.experiments.toys import Cut, Toy

from .clocked import Clocked

SECONDS = [1, 1, 3, 10]


def stepped(envs, turns):
    """What each row was last seen as, which rows acted, and the step."""
    obs = envs.reset()
    for _ in range(turns):
        acted = envs.ready
        step = envs.step(np.zeros(envs.count, np.int32))
        yield obs, acted, step
        obs = step.obs


def test_a_valid_row_goes_on_from_what_it_was_last_seen_as_and_the_others_stay():
    with ReadyRows(Clocked(Toy, SECONDS, 2)) as envs:
        for obs, _, step in stepped(envs, 100):
            after = step.obs.copy()
            if step.final_obs is not None:
                ended = step.terminated
                after[ended] = step.final_obs[ended]
            np.testing.assert_array_equal(after[step.valid] - obs[step.valid], [[1, 0]] * int(step.valid.sum()))
            under_way = np.setdiff1d(np.arange(4), envs.ready)
            np.testing.assert_array_equal(step.obs[under_way], obs[under_way])
            for fact in (step.valid, step.reward, step.terminated, step.truncated):
                assert not fact[under_way].any()


def test_a_step_acts_in_the_rows_that_were_ready_and_in_no_others():
    with ReadyRows(Clocked(Toy, SECONDS, 2)) as envs:
        sent = np.zeros(4, int)
        for _, acted, _step in stepped(envs, 60):
            sent[acted] += 1
            assert len(envs.ready) == 2
        assert (sent - envs._envs.taken <= 1).all(), "one at most is under way in each"
        assert envs._envs.taken[0] > 3 * envs._envs.taken[3] > 0, "nobody waits for the slowest"


def test_episodes_are_told_with_the_numbers_of_their_rows():
    with ReadyRows(Clocked(Cut, SECONDS, 2)) as envs:
        for _, _, step in stepped(envs, 40):
            assert [episode.env for episode in step.episodes] == np.flatnonzero(step.truncated).tolist()
            assert {episode.length for episode in step.episodes} <= {5}


def test_what_a_step_gave_is_never_written_to_again():
    with ReadyRows(Clocked(Toy, SECONDS, 2)) as envs:
        kept = [(step.obs, step.obs.copy(), step.valid, step.valid.copy()) for _, _, step in stepped(envs, 20)]
    for obs, then, valid, was in kept:
        np.testing.assert_array_equal(obs, then)
        np.testing.assert_array_equal(valid, was)


@pytest.mark.parametrize("name", ["CartPole-v1", "envpool:CartPole-v1"])
def test_rows_of_workers_and_of_envpool_step_so_too_and_begin_anew_when_restored(name):
    if name.startswith("envpool"):
        pytest.importorskip("envpool")
    with ReadyRows(make(name, 5, 0, asynchronous=True)) as envs:
        for _, _, step in stepped(envs, 30):
            assert envs.ready.shape == (2,)
            assert step.obs.shape == (5, 4)
            assert np.flatnonzero(step.valid).tolist() == envs.ready[step.valid[envs.ready]].tolist()
        assert envs.restore(envs.state()).shape == (5, 4)
        assert not envs.exact_resume
        envs.step(np.zeros(5, np.int32))
