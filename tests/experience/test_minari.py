"""Minari's data sets: what comes in is what the environment would have given, and what goes out comes back."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium import spaces as g

from starling.core.errors import DataError, MissingExtraError
from starling.core.spaces import Bool, Dict, Float, Int
from starling.data import Dataset, EpisodeWriter, RecordedEpisode, read_episodes
from starling.experience import minari as module
from starling.experience.minari import export_minari, import_minari


class FromMinari:
    """A Minari dataset of one episode of two steps, as far as importing looks at it."""

    def __init__(self, observation_space, action_space, observations, actions):
        self.observation_space, self.action_space = observation_space, action_space
        self._values = observations, actions

    def __str__(self):
        return "some/data-v0"

    def iterate_episodes(self):
        obs, actions = self._values
        flags = {"terminations": [False, True], "truncations": [False, False]}
        yield SimpleNamespace(id=0, observations=obs, actions=actions, rewards=[0.1, 2], **flags)


def test_values_are_carried_as_the_environment_would_give_them(tmp_path):
    found = FromMinari(
        g.Dict(at=g.Box(-1, 1, (2,), np.float64), on=g.Box(0, 1, (1,), np.bool_)),
        g.Discrete(4, start=5),
        {"at": np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]), "on": np.array([[True], [False], [True]])},
        np.array([5, 8]),
    )
    assert import_minari(found, tmp_path / "d") == 1
    signature = Dataset(tmp_path / "d").signature
    assert signature["obs"] == Dict(at=Float((2,), -1.0, 1.0), on=Bool((1,)))
    assert signature["action"] == Int((), 0, 4)
    (episode,) = read_episodes(tmp_path / "d")
    assert episode.obs["at"].dtype == np.float32
    assert episode.obs["at"][1].tolist() == np.float32([0.3, 0.4]).tolist()
    assert episode.obs["on"].tolist() == [[True], [False], [True]]
    assert episode.action.tolist() == [0, 3]
    assert episode.reward.tolist() == [0.1, 2.0]
    assert episode.terminated.tolist() == [False, True]


def test_values_that_their_space_forbids_are_told_with_the_episode(tmp_path):
    found = FromMinari(g.Box(-1, 1, (1,), np.float32), g.Discrete(2), np.zeros((3, 1), np.float32), np.array([0, 2]))
    with pytest.raises(DataError, match=r"some/data-v0, episode 0: the actions do not fit .* 0 … 1 was expected"):
        import_minari(found, tmp_path / "d")


def test_without_the_package_the_command_that_installs_it_is_named(monkeypatch, tmp_path):
    def refuse(name):
        raise ImportError(name)

    monkeypatch.setattr(module.importlib, "import_module", refuse)
    with pytest.raises(MissingExtraError, match=r"pip install 'starling-rl\[offline\]'"):
        import_minari("some/data-v0", tmp_path / "d")


@pytest.mark.filterwarnings("ignore")
def test_episodes_go_to_minari_and_come_back(tmp_path, monkeypatch):
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    rng = np.random.default_rng(0)
    made = []
    for steps in (3, 1, 5):
        end = np.arange(steps) == steps - 1
        obs = rng.standard_normal((steps + 1, 2)).astype(np.float32)
        action = rng.integers(0, 3, steps).astype(np.int32)
        made.append(RecordedEpisode(obs, action, rng.standard_normal(steps), end & (steps != 1), end & (steps == 1)))
    with EpisodeWriter(tmp_path / "e", Float((2,)), Int((), 0, 3)) as writer:
        for episode in made:
            writer.write(episode)
    exported = export_minari(tmp_path / "e", "starling/test-v0")
    assert exported.total_steps == 9
    assert import_minari("starling/test-v0", tmp_path / "back") == 3
    assert Dataset(tmp_path / "back").signature == Dataset(tmp_path / "e").signature
    for before, after in zip(made, read_episodes(tmp_path / "back"), strict=True):
        for name in ("obs", "action", "reward", "terminated", "truncated"):
            left, right = getattr(before, name), getattr(after, name)
            assert left.dtype == right.dtype
            np.testing.assert_array_equal(left, right)
