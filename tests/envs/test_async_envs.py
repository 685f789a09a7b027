"""What every implementation of AsyncEnvs promises, on CartPole; and the pool's own rows that do not wait for others."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from starling.core.errors import CheckpointError, ConfigError, EnvError, SpaceError
from starling.core.spaces import Dict, Float, Int
from starling.core.trees import leaves
from starling.envs import AsyncEnvs, AsyncPoolEnvs, make

from .broken import Good
from .cart import verify_physics
from .pooled import Seeded, Telling, Waiting

B, BATCH, LIMIT = 6, 2, 25


def pool(seed: int, **kwargs) -> AsyncEnvs:
    return make("CartPole-v1", B, seed, workers=2, asynchronous=True, batch=BATCH, max_episode_steps=LIMIT, **kwargs)


def envpool(seed: int, **kwargs) -> AsyncEnvs:
    pytest.importorskip("envpool")
    return make("envpool:CartPole-v1", B, seed, asynchronous=True, batch=BATCH, max_episode_steps=LIMIT, **kwargs)


@pytest.fixture(params=[pool, envpool], ids=["pool", "envpool"])
def maker(request):
    return request.param


@pytest.fixture
def envs(maker):
    with maker(0) as made:
        yield made


def policy(obs: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Even rows balance and reach the limit, odd ones fall."""
    return np.where(rows % 2, 1, obs[:, 2] + obs[:, 3] > 0).astype(np.int32)


def test_spaces_say_what_one_environment_has(envs):
    assert isinstance(envs, AsyncEnvs)
    assert (envs.count, envs.batch) == (B, BATCH)
    assert envs.observation_space.shape == (4,)
    assert envs.action_space == Int((), 0, 2)
    assert (envs.reward_space, envs.extras_space) == (Float(), Dict())
    assert not envs.exact_resume


def test_every_row_goes_its_own_way_by_the_physics(envs):
    """Each row's first answer is a reset; then its valid answers follow from what was sent to it last."""
    envs.reset()
    last_obs, last_action = np.zeros((B, 4), np.float32), np.zeros(B, np.int32)
    answers, returns, lengths = np.zeros(B, int), np.zeros(B), np.zeros(B, int)
    finished = []
    while answers.min() < 2 * LIMIT:
        rows, step = envs.recv()
        assert rows.shape == (BATCH,)
        assert rows[0] < rows[1]
        assert (step.obs.dtype, step.reward.dtype) == (np.float32, np.float32)
        assert not step.valid[answers[rows] == 0].any()
        assert not step.reward[~step.valid].any()
        verify_physics(last_obs[rows], last_action[rows], step)
        answers[rows] += 1
        returns[rows] += np.where(step.valid, step.reward, 0)
        lengths[rows] += step.valid
        over = rows[(step.terminated | step.truncated) & step.valid]
        assert [tuple(e) for e in step.episodes] == [(i, returns[i], lengths[i]) for i in over]
        finished += step.episodes
        returns[over], lengths[over] = 0, 0
        action = policy(step.obs, rows)
        last_obs[rows], last_action[rows] = step.obs, action
        envs.send(rows, action)
    assert {episode.env for episode in finished} == set(range(B))
    assert {episode.length for episode in finished if episode.env % 2 == 0} == {LIMIT}
    assert max(episode.length for episode in finished if episode.env % 2) < LIMIT


def test_the_caller_may_hold_several_batches_and_every_row_comes_once(envs):
    envs.reset()
    held = [envs.recv() for _ in range(B // BATCH)]
    assert sorted(int(i) for rows, _ in held for i in rows) == list(range(B))
    for rows, step in reversed(held):
        envs.send(rows, policy(step.obs, rows))
    again = [envs.recv() for _ in range(B // BATCH)]
    assert sorted(int(i) for rows, _ in again for i in rows) == list(range(B))
    assert all(step.valid.all() for _, step in again)


def test_waiting_for_rows_that_nobody_sent_is_refused(envs):
    with pytest.raises(ConfigError, match=r"waits for batch=2 rows, and 0 of 6 are under way; call reset\(\) first"):
        envs.recv()
    envs.reset()
    for _ in range(B // BATCH):
        envs.recv()
    with pytest.raises(ConfigError, match="0 of 6 are under way"):
        envs.recv()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([0], r"rows of shape \[1\]"),
        ([0.0, 1.0], "type float64"),
        ([0, 0], r"rows \[0, 0\] arrived"),
        ([0, 6], "recv\\(\\) gave"),
        ([-1, 0], "recv\\(\\) gave"),
    ],
)
def test_rows_that_were_not_received_are_refused(envs, rows, message):
    envs.reset()
    held = [envs.recv() for _ in range(B // BATCH)]
    with pytest.raises(ConfigError, match=message):
        envs.send(np.array(rows), np.zeros(BATCH, np.int32))
    received, _ = held[0]
    envs.send(received, np.zeros(BATCH, np.int32))
    with pytest.raises(ConfigError, match="not sent since"):
        envs.send(received, np.zeros(BATCH, np.int32))


def test_actions_of_a_wrong_shape_are_refused_and_the_rows_stay_with_the_caller(envs):
    envs.reset()
    rows, _ = envs.recv()
    with pytest.raises(SpaceError, match=r"\[3\] arrived, \[2\] was expected"):
        envs.send(rows, np.zeros(3, np.int32))
    envs.send(rows, np.zeros(BATCH, np.int32))


def test_a_reset_in_the_middle_begins_anew_in_every_row(envs):
    envs.reset()
    rows, _ = envs.recv()
    envs.send(rows, np.zeros(BATCH, np.int32))
    envs.recv()
    envs.reset()
    answers = [envs.recv() for _ in range(B // BATCH)]
    assert sorted(int(i) for rows, _ in answers for i in rows) == list(range(B))
    assert not any(step.valid.any() for _, step in answers)


def first_observations(envs):
    obs = np.zeros((B, 4), np.float32)
    for _ in range(B // BATCH):
        rows, step = envs.recv()
        obs[rows] = step.obs
    return obs


def test_a_restore_begins_episodes_not_seen_before(maker):
    with maker(0) as envs, maker(0) as other:
        envs.reset()
        first = first_observations(envs)
        state = envs.state()
        assert all(isinstance(leaf, (int, str)) for leaf in leaves(state))
        other.restore(state)
        second = first_observations(other)
        assert not (first == second).all(axis=1).any()
        assert other.state()["restores"] == 1


def test_half_of_the_rows_are_served_unless_another_number_is_asked_for():
    with make("Pendulum-v1", 3, 0, workers=1, asynchronous=True) as envs:
        assert envs.batch == 1
    for batch in (0, 4, True, 1.5):
        with pytest.raises(ConfigError, match="an integer from 1 to count=3"):
            make("Pendulum-v1", 3, 0, asynchronous=True, batch=batch)
    with pytest.raises(ConfigError, match="batch=2 has no effect where all rows step together"):
        make("Pendulum-v1", 3, 0, batch=2)
    with pytest.raises(ConfigError, match="cannot be made in another process"):
        make(lambda: Good(), 3, 0, asynchronous=True)


def test_each_row_of_the_pool_plays_what_it_plays_when_all_step_together():
    """The same seeds by row, so with a policy that looks at one row alone the episodes are the same."""
    seen: list[list] = [[] for _ in range(B)]
    with make("CartPole-v1", B, 0, max_episode_steps=LIMIT) as together:
        obs = together.reset()
        for _ in range(60):
            step = together.step(policy(obs, np.arange(B)))
            obs = step.obs
            for i in range(B):
                seen[i].append((obs[i].tolist(), float(step.reward[i]), bool(step.terminated[i])))
    with pool(0) as envs:
        envs.reset()
        taken = [0] * B
        while min(taken) < 10:
            rows, step = envs.recv()
            for place, i in enumerate(rows.tolist()):
                if step.valid[place] and taken[i] < 60:
                    found = (step.obs[place].tolist(), float(step.reward[place]), bool(step.terminated[place]))
                    assert found == seen[i][taken[i]]
                    taken[i] += 1
            envs.send(rows, policy(step.obs, rows))


def seed_of(row: int) -> int:
    with make(Good, 4, 0) as probe:
        return probe.state()["envs"][row]["seed"]


def test_nobody_waits_for_the_slowest_row(tmp_path):
    """Row 0 cannot finish its first step until the others have taken twenty."""
    until = tmp_path / "go"
    options = {"wanted": seed_of(0), "until": str(until)}
    with make(Waiting, 4, 0, workers=4, asynchronous=True, batch=1, **options) as envs:
        envs.reset()
        still, taken = np.zeros((1, 1), np.float32), [0] * 4

        def turn():
            rows, step = envs.recv()
            taken[rows[0]] += int(step.valid[0])
            envs.send(rows, still)

        while min(taken[1:]) < 20:
            turn()
        assert taken[0] == 0
        until.touch()
        while taken[0] == 0:
            turn()


def test_extras_and_masks_come_with_their_rows():
    with make(Telling, 4, 0, workers=2, asynchronous=True, batch=4, extras=("half",)) as envs:
        assert envs.extras_space == Dict(half=Float())
        envs.reset()
        rows, step = envs.recv()
        assert step.extras["half"].tolist() == [0, 0, 0, 0]
        envs.send(rows, np.zeros(4, np.int32))
        _, step = envs.recv()
        assert step.extras["half"].tolist() == [0.5] * 4
        assert step.obs["action_mask"].tolist() == [[True, True, False, False, False]] * 4


def all_of_them(envs, turns):
    envs.reset()
    for _ in range(turns):
        rows, _ = envs.recv()
        envs.send(rows, np.zeros((envs.batch, 1), np.float32))


def test_an_error_in_a_row_is_told_with_its_number_seed_and_step():
    options = {"fault": "step raises", "wanted": seed_of(3)}
    place = rf"Seeded, environment 3, episode seed {seed_of(3)}, step 3 of the episode: .*the wheel came off"
    with make(Seeded, 4, 0, workers=2, asynchronous=True, batch=4, **options) as envs:
        with pytest.raises(EnvError, match=place):
            all_of_them(envs, 5)
        with pytest.raises(EnvError, match=r"the others failed before; call reset\(\)"):
            envs.recv()
        all_of_them(envs, 2)  # in new episodes


def test_a_killed_worker_is_an_error_with_its_number_and_rows():
    with make("Pendulum-v1", 4, 0, workers=2, asynchronous=True, batch=4) as envs:
        assert isinstance(envs, AsyncPoolEnvs)
        all_of_them(envs, 1)
        os.kill(envs._workers._processes[1].pid, signal.SIGKILL)
        with pytest.raises(EnvError, match="worker 1 with environments 2 to 3 was killed by SIGKILL"):
            all_of_them(envs, 3)


def test_a_state_of_another_count_is_refused(maker):
    with maker(0) as envs, pytest.raises(CheckpointError, match="holds 7 environments and 6 were asked for"):
        envs.restore(envs.state() | {"count": 7})
