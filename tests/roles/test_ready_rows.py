"""Acting in the rows that are ready: what every plan learns of rows of very different speed is true."""

from __future__ import annotations

import numpy as np
import pytest

from starling.core.params import Params, with_scopes
from starling.core.trees import map_leaves
from tests.envs.clocked import Clocked
from tests.experience.acting import collect, collector_for, values
from tests.experiments.toys import Slope, Toy

GAMMA = 0.5
SECONDS = [1, 1, 2.5, 13]  # of a step in each row: the first take many while the last takes one


class CutToy(Toy):
    """Cut short after its ten steps."""

    def step(self, action):
        obs, reward, over, _, info = super().step(action)
        return obs, reward, False, over, info


class Still(Slope):
    """Always looks the same, and pays a number of its own."""

    def __init__(self):
        super().__init__()
        self.own = None

    def observe(self):
        self.own = self.number if self.own is None else self.own
        return np.zeros(2, np.float32)

    def reward(self, action):
        return self.own


def collecting(algo, env=Toy, batch=2, chunk=5, **settings):
    return collector_for(algo, Clocked(env, SECONDS, batch), chunk=chunk, **settings)


def taken(collector):
    """The steps of each row so far."""
    return collector.envs._envs.taken


def rows_of(chunk):
    return map_leaves(lambda leaf: leaf[: int(chunk["rows"])], chunk["items"])


def items_of(collector, chunks):
    found = [rows_of(collect(collector)["data"]) for _ in range(chunks)]
    return map_leaves(lambda *leaves: np.concatenate(leaves), *found)


def by_episode(obs):
    """The steps at which each episode was seen, in the order in which they came; its second number names it."""
    seen: dict[float, list[int]] = {}
    for t, number in obs.tolist():
        seen.setdefault(number, []).append(int(t))
    return seen


def test_every_transition_is_one_step_of_its_row_and_none_is_lost_or_doubled():
    collector = collecting("dqn", gamma=GAMMA, batch_size=4, normalise_rewards=True)
    items = items_of(collector, 60)
    np.testing.assert_array_equal(items["next_obs"] - items["obs"], [[1, 0]] * len(items["obs"]))
    assert len(items["obs"]) == collector.steps == taken(collector).sum()
    for steps in by_episode(items["obs"]).values():
        assert steps == list(range(len(steps)))
    t = items["obs"][:, 0]
    np.testing.assert_array_equal(items["discount"], np.where(t == 9, 0, GAMMA).astype(np.float32))
    np.testing.assert_allclose(items["discounted_return"], 2 - 0.5**t, rtol=1e-6)
    assert taken(collector)[0] > 5 * taken(collector)[3] > 0


@pytest.mark.parametrize("batch", [1, 2, 3, 4])
def test_windows_of_several_steps_wait_with_their_row(batch):
    collector = collecting("dqn", batch=batch, gamma=GAMMA, batch_size=4, n_step=3)
    items = items_of(collector, 60)
    length = (items["next_obs"] - items["obs"])[:, 0]
    np.testing.assert_array_equal(length, np.minimum(3, 10 - items["obs"][:, 0]))
    np.testing.assert_array_equal((items["next_obs"] - items["obs"])[:, 1], 0)
    np.testing.assert_allclose(items["reward"], 2 - 0.5 ** (length - 1))
    assert collector.steps - 2 * 4 <= len(items["obs"]) <= collector.steps, "two windows of a row are open at most"
    for steps in by_episode(items["obs"]).values():
        assert steps == list(range(len(steps)))


def noting_versions(collector):
    """Its policy, and which version was last asked about each observation."""
    policy, seen = collector.acting._acting.policy, {}
    act = policy.act

    def noting(obs, *rest):
        seen.update({tuple(row): policy.version for row in obs.tolist()})
        return act(obs, *rest)

    policy.act = noting
    return policy, seen


def test_items_carry_the_version_that_chose_their_action_however_late_its_outcome_came():
    collector = collecting("dqn", gamma=GAMMA, batch_size=4)
    policy, chosen = noting_versions(collector)
    late = 0
    for version in range(60):
        policy.version = version
        chunk = collect(collector)
        items = rows_of(chunk["data"])
        assert items["version"].tolist() == [chosen[tuple(row)] for row in items["obs"].tolist()]
        assert chunk["about"]["version"] == version
        late += int((items["version"] < version).sum())
    assert late > 0


def test_columns_of_a_rollout_are_contiguous_and_a_fast_row_fills_several():
    collector = collecting("a2c", rollout=7, gamma=GAMMA, normalise_rewards=True)
    ends: dict[tuple, int] = {}  # what columns left off at
    seen, several = [], 0
    for _ in range(30):
        data = collect(collector)["data"]
        assert data["mask"].all()
        obs = np.concatenate([data["obs"], data["next_obs"][None]])  # [T + 1, B, 2]
        over = data["terminated"]
        goes_on = obs[1:] - obs[:-1]
        np.testing.assert_array_equal(goes_on[~over], [[1, 0]] * int((~over).sum()))
        np.testing.assert_array_equal(data["obs"][over][:, 0], 9)
        np.testing.assert_array_equal(obs[1:][over][:, 0], 0)
        np.testing.assert_allclose(data["discounted_return"], 2 - 0.5 ** data["obs"][..., 0], rtol=1e-6)
        firsts = [tuple(row) for row in data["obs"][0].tolist()]
        ends.update({tuple(row): column for column, row in enumerate(data["next_obs"].tolist())})
        several += any(first in map(tuple, data["next_obs"].tolist()) for first in firsts)
        seen += data["obs"].reshape(-1, 2).tolist()
    assert several > 0, "one column goes on where another of its chunk left off"
    assert len({tuple(row) for row in seen}) == len(seen), "none comes twice"
    assert 0 <= taken(collector).sum() - len(seen) <= 4 * 7 + 3 * 7, "those of columns that are not full, or wait"
    for steps in by_episode(np.array(sorted(seen))).values():
        assert steps == list(range(steps[0], steps[-1] + 1))


def test_a_cut_column_is_bootstrapped_with_the_value_of_its_own_final_observation():
    collector = collecting("a2c", CutToy, rollout=7, gamma=GAMMA)
    collector.acting.policy = collector.acting._acting.policy
    for _ in range(10):
        data = collect(collector)["data"]
        finals = data["obs"][data["truncated"]] + np.array([1, 0], np.float32)
        np.testing.assert_allclose(data["bootstrap"][data["truncated"]], values(collector, finals), rtol=1e-5)
        assert not data["bootstrap"][~data["truncated"]].any()


def test_a_rollout_is_as_old_as_the_weights_that_began_its_oldest_column():
    collector = collecting("a2c", rollout=7, gamma=GAMMA)
    policy, began = noting_versions(collector)
    lags = []
    for version in range(30):
        policy.version = version
        chunk = collect(collector)
        assert chunk["about"]["version"] == min(began[tuple(row)] for row in chunk["data"]["obs"][0].tolist())
        lags.append(version - chunk["about"]["version"])
    assert min(lags[5:]) <= 1 < 5 < max(lags), "only chunks with a column of the slow row are old"


def test_memory_is_that_of_the_row():
    collector = collecting("a2c", rollout=7, memory="lstm", memory_size=3)
    policy, algorithm = collector.acting._acting.policy, collector.algorithm
    for _ in range(10):
        data = collect(collector)["data"]
        along, _ = algorithm.along(policy.weights, data)
        np.testing.assert_allclose(along.log_prob(data["action"]), data["log_prob"], atol=1e-5)
    assert data["memory"]["h"].any()


def test_sequences_are_steps_of_one_row_with_its_memory_before_the_first():
    settings = {"length": 3, "burn_in": 1, "overlap": 2, "memory_size": 3, "batch_size": 2}
    collector = collecting("r2d2", **settings)
    policy = collector.acting._acting.policy
    items = items_of(collector, 40)
    after: dict[tuple, np.ndarray] = {}
    begun = []
    for i in range(len(items["reward"])):
        obs, steps = items["obs"][i], int(items["mask"][i].sum())
        np.testing.assert_array_equal(np.diff(obs[: steps + 1], axis=0), [[1, 0]] * steps)
        assert items["terminated"][i].tolist() == [bool(obs[k + 1, 0] == 10 and k < steps) for k in range(4)]
        first = tuple(obs[0].tolist())
        begun.append(first)
        if first[0] == 0:
            assert not items["memory"]["h"][i].any()
        elif first in after:
            np.testing.assert_allclose(items["memory"]["h"][i], after[first], atol=1e-6)
        memory = with_scopes(map_leaves(lambda x, i=i: x[i : i + 1], items["memory"]), Params)
        for k in range(steps):
            memory = with_scopes(policy.greedy(obs[k : k + 1], memory).memory, Params)
            after[tuple(obs[k + 1].tolist())] = memory["h"][0]
    assert len(set(begun)) == len(begun)
    assert any(first[0] > 0 and first in after for first in begun)


def test_episodes_begin_with_their_chunk_and_are_whole():
    collector = collecting("reinforce", episodes=8, episode_length=12)
    for _ in range(3):
        data = collect(collector)["data"]
        assert data["mask"].sum(axis=0).tolist() == [10] * 8
        np.testing.assert_array_equal(data["obs"][:10, :, 0], np.arange(10)[:, None] * np.ones(8))
        assert (data["obs"][:10, :, 1] == data["obs"][0, :, 1]).all()


def test_evaluations_earn_what_one_episode_of_each_row_does():
    collector = collecting("es", population=4)
    assert [float(collect(collector)["data"]["earned"]) for _ in range(4)] == [10.0] * 4


def test_noise_lasts_for_steps_of_its_row():
    collector = collecting("sac", Still, hold_noise=3, learning_starts=8, batch_size=4)
    items = items_of(collector, 40)
    rows = np.unique(items["reward"])
    assert len(rows) == 4
    for row in rows:
        actions = items["action"][items["reward"] == row][:, 0]
        whole = actions[: len(actions) // 3 * 3].reshape(-1, 3)
        assert (whole == whole[:, :1]).all()
        assert len(np.unique(whole[:, 0])) == len(whole)


def test_a_restored_collector_begins_new_episodes_and_learns_of_no_step_between_old_and_new():
    one, other = (collecting("dqn", gamma=GAMMA, batch_size=4, n_step=3) for _ in range(2))
    items_of(one, 4)
    other.restore(one.state())
    items = items_of(other, 20)
    length = (items["next_obs"] - items["obs"])[:, 0]
    np.testing.assert_array_equal(length, np.minimum(3, 10 - items["obs"][:, 0]))
    assert other.steps > one.steps > 0
