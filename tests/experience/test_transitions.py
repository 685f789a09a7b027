"""Transitions: what an accumulator makes of steps, and what a feed draws."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from starling.components.schedules import LinearSchedule
from starling.core.errors import ConfigError
from starling.core.spaces import Dict, Float, Int
from starling.experience.cadence import Round
from starling.experience.plan import StepSpaces
from starling.experience.transitions import Transitions
from tests.experience.acting import collect, collector_for
from tests.experiments.toys import Cut, Over, Toy

GAMMA = 0.5


def transitions(env, count=1, chunk=1, **settings):
    settings = {"gamma": GAMMA, "batch_size": 4, **settings}
    return collector_for("dqn", env, count, chunk=chunk, **settings)


def items_of(collector, chunks):
    """The items of some chunks, joined."""
    found = [collect(collector)["data"] for _ in range(chunks)]
    rows = [{k: v[: int(c["rows"])] for k, v in c["items"].items()} for c in found]
    return {key: np.concatenate([row[key] for row in rows]) for key in rows[0]}


@pytest.mark.parametrize(("env", "discount"), [(Cut, GAMMA), (Over, 0.0)])
def test_a_transition_keeps_its_discount_at_a_cut_and_loses_it_at_an_end(env, discount):
    items = items_of(transitions(env), 5)
    assert items["discount"].tolist() == [GAMMA] * 4 + [discount]
    np.testing.assert_array_equal(items["reward"], np.ones(5))


def test_rows_that_are_no_steps_never_become_transitions():
    envs = gym.vector.SyncVectorEnv([Cut], autoreset_mode=gym.vector.AutoresetMode.NEXT_STEP)
    collector = transitions(envs)
    assert len(items_of(collector, 12)["reward"]) == collector.steps == 10


def test_a_collector_whose_environments_begin_anew_when_restored_leaves_their_open_windows():
    one, other = (transitions(gym.vector.SyncVectorEnv([Toy]), n_step=3, chunk=5) for _ in range(2))
    items_of(one, 1)
    other.restore(one.state())
    items = items_of(other, 4)
    steps = np.minimum(3, 10 - items["obs"][:, 0])
    np.testing.assert_array_equal(items["next_obs"] - items["obs"], np.stack([steps, 0 * steps], axis=1))


def test_n_step_returns_stop_at_the_end_of_an_episode():
    items = items_of(transitions(Over, n_step=3, chunk=4), 5)
    # three steps of 1: 1 + ½ + ¼; then two and one at the end, with nothing after
    assert {(float(r), float(d)) for r, d in zip(items["reward"], items["discount"])} == {
        (1.75, GAMMA**3), (1.75, 0.0), (1.5, 0.0), (1.0, 0.0)
    }  # fmt: skip


def test_every_item_carries_the_version_of_the_weights_that_acted():
    collector = transitions(Over, chunk=2)
    collector.acting.policy.version = 7
    first = items_of(collector, 1)
    collector.acting.policy.version = 9
    assert first["version"].tolist() == [7, 7]
    assert items_of(collector, 1)["version"].tolist() == [9, 9]


def test_an_actor_that_waits_stops_where_updates_fall_due_whatever_rows_count():
    envs = gym.vector.SyncVectorEnv([Cut] * 3, autoreset_mode=gym.vector.AutoresetMode.NEXT_STEP)
    collector = transitions(envs, count=3, chunk=100, train_every=10)
    collector._waits_for = 1
    taken = [int(collect(collector)["about"]["steps"]) for _ in range(4)]
    # the sixth vector step is a reset of all three: 12, then 15 + 0 + 6, 30, 42 …
    assert taken == [12, 9, 9, 12]


def test_first_priorities_are_computed_over_a_layout_of_one_size():
    seen = []

    def priorities(batch):
        seen.append(len(batch["reward"]))
        assert set(batch) == {"obs", "action", "reward", "discount", "next_obs", "weight"}
        return np.arange(len(batch["reward"]), dtype=np.float32)

    collector = transitions(Over, count=2, chunk=3, alpha=0.6, n_step=2)
    algorithm = collector.algorithm
    collector.accumulator = algorithm.plan.accumulator(algorithm.step_spaces, 2, 3, priorities)
    chunks = [collect(collector)["data"] for _ in range(4)]
    assert set(seen) == {8}
    for chunk in chunks:
        assert chunk["items"]["priority"].tolist() == list(range(int(chunk["rows"])))


SPACES = StepSpaces(Float((2,)), Int((), high=2), Dict(), Dict())


def feed_with(count, **settings):
    plan = Transitions(envs=1, capacity=64, batch_size=8, learning_starts=8, gamma=0.9, **settings)
    feed = plan.feed(SPACES, 1, seed=0)
    blank = plan.signature(SPACES).ranked(batch=True).zeros((count,))
    blank["reward"][:] = np.arange(count)
    blank["version"][:] = np.arange(count)
    feed.insert(blank)
    return feed


def test_a_round_of_several_updates_is_one_draw_where_nothing_changes_between():
    (batch,) = feed_with(32).batches(Round(0.0, 3))
    assert (batch.updates, batch.data["reward"].shape) == (3, (3, 8))


def test_with_priorities_every_update_draws_after_the_one_before():
    feed = feed_with(32, alpha=1.0, beta=LinearSchedule(0.4, 1.0))
    drawn = []
    for batch in feed.batches(Round(0.0, 3)):
        assert batch.updates == 1
        drawn.append(set(batch.data["reward"].tolist()))
        feed.learned(batch, np.where(batch.data["reward"] == 5, 1e6, 0.0).astype(np.float32))
    assert len(drawn) == 3


def test_importance_weights_follow_the_progress_of_the_run():
    feed = feed_with(4, alpha=1.0, beta=LinearSchedule(0.0, 1.0))
    feed.table.update_priorities(feed.table.index.keys[:4].copy(), np.array([1.0, 1.0, 1.0, 5.0]))
    start, end = feed.draw(64, 0.0).data["weight"].copy(), feed.draw(64, 1.0).data["weight"].copy()
    np.testing.assert_allclose(start, 1.0)
    assert sorted(set(end.tolist())) == pytest.approx([0.2, 1.0], rel=1e-5)  # five times as likely: a fifth


def test_memory_that_is_still_read_is_waited_for_before_it_is_written_again():
    feed, waited = feed_with(32), []
    batches = [feed.draw(8, 0.0) for _ in range(3)]
    kept = [batch.data["reward"].copy() for batch in batches]
    for i, batch in enumerate(batches):
        feed.lent(batch, lambda i=i: waited.append(i))
        assert np.array_equal(batch.data["reward"], kept[i])
    feed.draw(8, 0.0)
    assert waited == [0], "the oldest of three, and it alone"


def test_a_share_of_a_batch_that_does_not_divide_is_refused_with_one_that_does():
    plan = Transitions(envs=1, capacity=64, batch_size=9, learning_starts=8, gamma=0.9)
    with pytest.raises(ConfigError, match=r"batch_size=9 cannot be shared equally by 2 learners; .* 10"):
        plan.shared(2)
    with pytest.raises(ConfigError, match="batch_size=9; it must be from 1 to capacity=8"):
        Transitions(envs=1, capacity=8, batch_size=9, learning_starts=8, gamma=0.9)


def images(count, stacked, rng):
    """Consecutive stacks of four frames, or images that share nothing."""
    frames = rng.integers(0, 256, (count + 4, 64, 64), dtype=np.uint8)
    if stacked:
        stacks = np.stack([np.moveaxis(frames[i : i + 4], 0, -1) for i in range(count + 1)])
    else:
        stacks = rng.integers(0, 256, (count + 1, 64, 64, 4), dtype=np.uint8)
    return stacks[:-1], stacks[1:]


def test_a_pool_of_frames_is_sized_by_what_arrives_also_where_counts_are_read_before():
    spaces = StepSpaces(Int((64, 64, 4), 0, 256, "uint8"), Int((), high=2), Dict(), Dict())
    plan = Transitions(envs=1, capacity=40, batch_size=8, learning_starts=8, gamma=0.9)
    feed = plan.feed(spaces, 1, seed=0)
    assert (feed.counts.inserts, feed.counts.size, feed.ready) == (0, 0, False)
    rows = plan.signature(spaces).ranked(batch=True).zeros((40,))
    rows["obs"], rows["next_obs"] = images(40, False, np.random.default_rng(0))
    feed.insert(rows)
    assert (feed.counts.inserts, feed.counts.size, feed.ready) == (40, 40, True)
    feed.draw(8, 0.0)
    assert (feed.counts.inserts, feed.counts.size, feed.counts.samples) == (40, 40, 8)
    assert len(feed.table) == 40, "the pool has room for all of them"


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("stacked", [True, False])
def test_images_lie_in_a_pool_that_is_as_large_as_they_ask_for(stacked, axis):
    """Whichever axis their planes lie along: EnvPool and Gymnasium stack frames along the first."""
    obs, following = (
        np.moveaxis(x, -1, 1) if axis == 0 else x for x in images(1_100, stacked, np.random.default_rng(0))
    )
    spaces = StepSpaces(Int(obs.shape[1:], 0, 256, "uint8"), Int((), high=2), Dict(), Dict())
    plan = Transitions(envs=1, capacity=4_000, batch_size=8, learning_starts=8, gamma=0.9)
    feed = plan.feed(spaces, 1, seed=0)
    rows = plan.signature(spaces).ranked(batch=True).zeros((1_100,))
    rows |= {"obs": obs, "next_obs": following, "reward": np.arange(1_100, dtype=np.float32)}
    feed.insert(rows)
    (pool,) = set(feed.table.shared.values())
    bytes_per_item = pool.frames * pool.width / 4_000
    assert bytes_per_item < (1.3 if stacked else 4.8) * 64 * 64
    drawn = feed.draw(64, 0.0).data
    for i, number in enumerate(drawn["reward"].astype(int)):
        np.testing.assert_array_equal(drawn["obs"][i], obs[number])
        np.testing.assert_array_equal(drawn["next_obs"][i], following[number])
    again = plan.feed(spaces, 1, seed=0)
    again.restore(feed.state())
    np.testing.assert_array_equal(feed.draw(8, 0.0).data["obs"], again.draw(8, 0.0).data["obs"])
