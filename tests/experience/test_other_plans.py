"""Sequences, whole episodes, evaluations and data sets: what each keeps of the steps."""

from __future__ import annotations

import numpy as np
import pytest

import starling
from starling.core.errors import ConfigError, DataError
from starling.core.spaces import Dict, Float, Int
from starling.data import EpisodeWriter, RecordedEpisode
from starling.experience.cadence import Round
from starling.experience.demonstrations import DataSet, Demonstrated
from starling.experience.episodes import Episodes
from starling.experience.evaluations import Evaluations, perturbation
from starling.experience.plan import StepSpaces
from starling.experience.transitions import Transitions
from tests.experience.acting import collect, collector_for
from tests.experiments.toys import Cut, Lengths, Over

SPACES = StepSpaces(Float((2,)), Int((), high=2), Dict(), Dict())


def test_sequences_overlap_end_with_their_episode_and_remember_what_came_before():
    settings = {"length": 3, "burn_in": 1, "overlap": 2, "memory_size": 3, "batch_size": 2}
    chunk = collect(collector_for("r2d2", Over, chunk=10, **settings))["data"]
    items, rows = chunk["items"], int(chunk["rows"])
    # episodes of five steps: steps 0–3, 2–5 cut to three, twice
    assert rows == 4
    assert items["mask"][:rows].sum(axis=1).tolist() == [4, 3, 4, 3]
    assert items["terminated"][:rows].sum(axis=1).tolist() == [0, 1, 0, 1]
    np.testing.assert_array_equal(items["reward"][:rows], items["mask"][:rows])
    assert [bool(row.any()) for row in items["memory"]["h"][:rows]] == [False, True, False, True]


def test_a_chunk_of_sequences_is_full_before_it_could_overflow():
    settings = {"length": 3, "burn_in": 1, "overlap": 2, "memory_size": 3, "batch_size": 2}
    collector = collector_for("r2d2", Lengths, count=2, chunk=40, **settings)
    room = len(collector.accumulator.blank()["items"]["reward"])
    for _ in range(5):
        assert int(collect(collector)["data"]["rows"]) <= room


def test_episodes_are_whole_and_as_many_of_each_environment():
    collector = collector_for("reinforce", Lengths, count=2, episodes=4, episode_length=30)
    data = collect(collector)["data"]
    lengths = data["mask"].sum(axis=0).tolist()
    assert sorted(lengths) == [1, 1, 20, 20]  # each environment alternates between the two
    np.testing.assert_array_equal(data["reward"], data["mask"])
    assert data["terminated"].sum(axis=0).tolist() == [1, 1, 1, 1]
    for column, length in enumerate(lengths):
        assert data["terminated"][int(length) - 1, column]


def test_an_episode_that_is_longer_than_the_longest_is_refused_with_the_setting():
    with pytest.raises(DataError, match="episode_length=3; raise it"):
        collect(collector_for("reinforce", Over, episodes=1, episode_length=3))
    with pytest.raises(ConfigError, match=r"episodes=3 cannot be shared equally by envs=2; .* 4"):
        Episodes(envs=2, episodes=3, length=5)


def test_evaluations_come_in_pairs_of_a_perturbation_and_its_opposite():
    collector = collector_for("es", Cut, population=4, sigma=0.5)
    weights = np.concatenate([leaf.reshape(-1) for leaf in _flat(collector.acting.policy.weights)])
    found = []
    for _ in range(4):
        item = collect(collector)["data"]
        acting = np.concatenate([leaf.reshape(-1) for leaf in _flat(collector.acting.policy._params)])
        np.testing.assert_allclose(
            acting, weights + float(item["sign"]) * 0.5 * perturbation(int(item["seed"]), weights.size), rtol=1e-5
        )
        assert item["earned"] == 5.0
        found.append((int(item["seed"]), float(item["sign"])))
    assert found[0][0] == found[1][0] != found[2][0] == found[3][0]
    assert [sign for _, sign in found] == [1, -1, 1, -1]
    with pytest.raises(ConfigError, match="use an even number"):
        Evaluations(envs=1, population=3, sigma=0.1)


def _flat(tree):
    from starling.core.trees import leaves

    return leaves(tree)


def write(directory, episodes=3, obs=SPACES.obs, bad=False):
    """Episodes of four steps whose actions are all 1 and whose rewards tell the step."""
    with EpisodeWriter(directory, obs, SPACES.action) as writer:
        for _ in range(episodes):
            seen = np.full((5, *obs.shape), np.nan if bad else 0.5, np.float32)
            over = np.array([False, False, False, True])
            writer.write(RecordedEpisode(seen, np.ones(4, np.int32), np.arange(4.0), over, np.zeros(4, np.bool_)))


def test_a_data_set_is_drawn_from_without_anybody_acting(tmp_path):
    write(tmp_path / "data")
    plan = DataSet(path=str(tmp_path / "data"), batch_size=64, gamma=0.5)
    feed = plan.feed(SPACES, 0, seed=0)
    (batch,) = feed.batches(Round(0.0, 1))
    assert set(batch.data["reward"].tolist()) == {0.0, 1.0, 2.0, 3.0}
    assert (batch.data["action"] == 1).all()
    assert (batch.data["discount"][batch.data["reward"] == 3.0] == 0).all()
    with pytest.raises(TypeError, match="nobody acts"):
        plan.accumulator(SPACES, 1, 1)


def test_a_data_set_of_other_spaces_or_with_numbers_that_are_none_is_refused(tmp_path):
    write(tmp_path / "other", obs=Float((3,)))
    with pytest.raises(DataError, match=r"the environment's is .* Take another data set"):
        DataSet(path=str(tmp_path / "other"), batch_size=4).feed(SPACES, 0, 0)
    write(tmp_path / "bad", bad=True)
    with pytest.raises(DataError, match="obs holds a number that is not finite"):
        DataSet(path=str(tmp_path / "bad"), batch_size=4).feed(SPACES, 0, 0)
    write(tmp_path / "empty", episodes=0)
    with pytest.raises(DataError, match="holds no episodes"):
        DataSet(path=str(tmp_path / "empty"), batch_size=4).feed(SPACES, 0, 0)


def test_demonstrations_have_their_share_of_every_batch(tmp_path):
    write(tmp_path / "data")
    own = Transitions(envs=1, capacity=64, batch_size=8, learning_starts=8, gamma=0.5, alpha=0.6)
    plan = Demonstrated.of(own, str(tmp_path / "data"), 0.25)
    feed = plan.feed(SPACES, 1, seed=0)
    assert not feed.ready, "what actors send comes first"
    rows = plan.signature(SPACES).ranked(batch=True).zeros((16,))
    feed.add([{"rows": np.int64(16), "items": {**rows, "reward": np.full(16, -1, np.float32)}}])
    for batch in feed.batches(Round(0.0, 2)):
        assert (batch.data["reward"] == -1).tolist() == [True] * 6 + [False] * 2
        feed.learned(batch, np.ones(8, np.float32))
    again = plan.feed(SPACES, 1, seed=0)
    again.restore(feed.state())
    first, second = next(feed.batches(Round(0.0, 1))), next(again.batches(Round(0.0, 1)))
    np.testing.assert_array_equal(first.data["reward"], second.data["reward"])


def test_a_run_is_recorded_and_cloned_from_the_command_line_of_python(tmp_path):
    settings = {"envs": 4, "rollout": 8, "minibatch": 32, "epochs": 2, "hidden": [8]}
    run = starling.train(
        "ppo", "CartPole-v1", steps=320, out=str(tmp_path / "run"), quiet=True, eval_episodes=2, backend="torch",
        preset="none", ppo=settings,
    )  # fmt: skip
    returns = starling.collect(run.directory, 5, tmp_path / "data")
    assert len(returns) == 5
    bc = {"data": str(tmp_path / "data"), "hidden": [8], "batch_size": 16}
    cloned = starling.train(
        "bc", "CartPole-v1", updates=50, out=str(tmp_path / "bc"), quiet=True, eval_episodes=2, backend="torch", bc=bc
    )
    assert cloned.summary["updates"] == cloned.summary["env_steps"] == 50
    assert cloned.summary["final_return"] > 0
    with pytest.raises(ConfigError, match="updates=10 has no effect where ppo acts"):
        starling.train("ppo", "CartPole-v1", updates=10, out=str(tmp_path / "no"), quiet=True)
