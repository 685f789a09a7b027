import numpy as np
import pytest

from starling.core.errors import ConfigError, DataError, MissingExtraError
from starling.core.spaces import Bool, Dict, Float, Int, Tuple
from starling.data import (
    Dataset,
    DatasetWriter,
    EpisodeAdder,
    EpisodeWriter,
    FramePool,
    NStepAdder,
    RecordedEpisode,
    Table,
    read_episodes,
    replay_episode,
    sequence_signature,
    transition_signature,
)
from starling.data.datasets import files as module
from starling.data.datasets.schema import space_from_plain, space_to_plain

from .helpers import POINT, points
from .test_frames import Stacks, images

MIXED = Dict(
    a=Tuple(Float((2, 3)), Bool(())),
    image=Int((4, 5), 0, 256, "uint8"),
    n=Int((), 0, 9, "int64"),
    bounded=Float((2,), np.array([0.0, -np.inf]), np.array([1.0, 2.0]), "float64"),
    flags=Bool((3,)),
)


def test_a_space_survives_as_plain_data():
    assert space_from_plain(space_to_plain(MIXED)) == MIXED
    with pytest.raises(DataError, match="does not describe a space"):
        space_from_plain({"kind": "colour", "shape": [], "dtype": "x", "low": 0, "high": 1})


def test_without_the_extra_the_error_names_it(tmp_path, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(module.importlib, "import_module", missing)
    with pytest.raises(MissingExtraError, match="offline"):
        DatasetWriter(tmp_path, POINT)


def test_an_episode_is_replayed_into_an_adder():
    obs = np.arange(5, dtype=np.float32)
    no = np.zeros(4, bool)
    episode = RecordedEpisode(obs, np.zeros(4, np.int32), np.ones(4), no, no)
    table = Table(transition_signature(Float(()), Int(())), 10)
    assert replay_episode(episode, NStepAdder(table, 1, 2, 0.5)) == 4
    columns = table.state()["columns"]
    assert columns["next_obs"].tolist() == [2, 3, 4, 4]
    assert columns["discount"].tolist() == [0.25, 0.25, 0.25, 0.5]  # it was cut off, not terminated
    with pytest.raises(ConfigError, match="2 environments"):
        replay_episode(episode, NStepAdder(table, 2))


def test_a_replayed_episode_keeps_its_facts_memory_and_versions():
    obs, end = np.arange(4, dtype=np.float32), np.array([False, False, True])
    extras = {"memory": np.float32([10, 11, 12]), "version": np.array([6, 6, 7])}
    episode = RecordedEpisode(obs, np.zeros(3, np.int32), np.array([1.5, -2.0, 3.0]), end, ~end & end, extras)
    table = Table(sequence_signature(Float(()), Int(()), 4, memory=Float(()), version=True), 10)
    assert replay_episode(episode, EpisodeAdder(table, 1)) == 1
    item = {name: leaf[0].tolist() for name, leaf in table.sample(1).data.items()}
    assert item["obs"] == [0, 1, 2, 3, 0]
    assert item["reward"] == [1.5, -2.0, 3.0, 0.0]
    assert item["terminated"] == [False, False, True, False]
    assert item["truncated"] == [False] * 4
    assert item["mask"] == [True, True, True, False]
    assert item["memory"] == 10
    assert item["version"] == [6, 6, 7, 0]


class TestWithArrow:
    @pytest.fixture(autouse=True)
    def needs_arrow(self):
        pytest.importorskip("pyarrow")

    def test_items_come_back_as_they_were_written(self, tmp_path):
        batches = [MIXED.ranked(batch=True).sample(np.random.default_rng(i), (n,)) for i, n in enumerate((3, 40, 1))]
        with DatasetWriter(tmp_path / "d", MIXED, rows_per_file=20) as writer:
            for batch in batches:
                writer.write(batch)
        dataset = Dataset(tmp_path / "d")
        assert dataset.signature == MIXED
        assert len(dataset) == 44
        read = list(dataset.batches(7))
        for path in ("image", "n", "bounded", "flags"):
            together = np.concatenate([b[path] for b in read])
            np.testing.assert_array_equal(together, np.concatenate([b[path] for b in batches]))
        np.testing.assert_array_equal(
            np.concatenate([b["a"][0] for b in read]), np.concatenate([b["a"][0] for b in batches])
        )

    def test_a_table_is_written_oldest_first_and_read_back(self, tmp_path):
        table = Table(POINT, 5)
        table.insert(points(*range(4)))
        table.insert(points(*range(4, 8)))
        with DatasetWriter(tmp_path / "d", POINT) as writer:
            writer.write_table(table, rows=2)
        again = Dataset(tmp_path / "d").to_table(sampler="prioritized")
        assert again.state()["columns"]["n"].tolist() == [3, 4, 5, 6, 7]
        assert Dataset(tmp_path / "d").to_table(capacity=2).state()["columns"]["n"].tolist() == [7, 6]

    def test_shared_frames_are_written_as_observations(self, tmp_path):
        pool = FramePool(images((4, 5, 3)), 100, -1)
        signature = transition_signature(images((4, 5, 3)), Int(()))
        table = Table(signature, 20, shared={"obs": pool, "next_obs": pool})
        env, adder = Stacks(0, 1, -1, 0.2), NStepAdder(table, 1)
        steps = [env.step() for _ in range(10)]
        for step in steps:
            adder.add(**step)
        with DatasetWriter(tmp_path / "d", signature) as writer:
            writer.write_table(table)
        (batch,) = Dataset(tmp_path / "d").batches()
        np.testing.assert_array_equal(batch["obs"], np.concatenate([step["obs"] for step in steps]))

    def test_unfinished_torn_and_foreign_datasets_are_refused(self, tmp_path):
        writer = DatasetWriter(tmp_path / "d", POINT, rows_per_file=1)
        writer.write(points(1, 2))
        with pytest.raises(DataError, match="no finished dataset"):
            Dataset(tmp_path / "d")
        with pytest.raises(DataError, match="'n'"):
            writer.write({"n": np.zeros(1), "x": np.zeros((1, 2), np.float32)})
        writer.close()
        with pytest.raises(DataError, match="already"):
            DatasetWriter(tmp_path / "d", POINT)
        with pytest.raises(DataError, match="episodes need"):
            next(read_episodes(tmp_path / "d"))
        part = tmp_path / "d" / "part-000000.parquet"
        content = part.read_bytes()
        part.write_bytes(content[:-1])
        with pytest.raises(DataError, match="is torn"):
            list(Dataset(tmp_path / "d").batches())
        part.unlink()
        with pytest.raises(DataError, match="cannot be read"):
            list(Dataset(tmp_path / "d").batches())
        (tmp_path / "d" / "dataset.json").write_text("[]")
        with pytest.raises(DataError, match="no finished dataset"):
            Dataset(tmp_path / "d")

    def episodes(self):
        rng = np.random.default_rng(0)
        made = []
        for steps in (3, 1, 5):
            end = np.arange(steps) == steps - 1
            made.append(
                RecordedEpisode(
                    rng.standard_normal((steps + 1, 2)).astype(np.float32),
                    rng.integers(0, 3, steps),
                    rng.standard_normal(steps),
                    end & (steps != 1),
                    end & (steps == 1),
                    {"log_prob": rng.standard_normal(steps).astype(np.float32)},
                )
            )
        return made

    def same(self, a, b):
        for name in ("obs", "action", "reward", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))

    def test_episodes_come_back_as_they_were_written(self, tmp_path):
        made = self.episodes()
        spaces = {"obs": Float((2,)), "action": Int((), high=3, dtype="int64"), "log_prob": Float(())}
        with EpisodeWriter(tmp_path / "e", **spaces) as writer:
            for episode in made:
                writer.write(episode)
            with pytest.raises(DataError, match="one more than steps"):
                writer.write(
                    RecordedEpisode(
                        made[0].obs[1:], *[getattr(made[0], n) for n in ("action", "reward")], *[made[0].terminated] * 2
                    )
                )
        read = list(read_episodes(tmp_path / "e"))
        assert [len(e) for e in read] == [3, 1, 5]
        for a, b in zip(made, read):
            self.same(a, b)
            np.testing.assert_array_equal(a.extras["log_prob"], b.extras["log_prob"])
