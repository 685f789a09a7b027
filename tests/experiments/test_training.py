"""Who learns and who acts, and how often."""

from __future__ import annotations

import numpy as np
import pytest

import starling
from starling.algorithms.compiled.backends import choose_backends, limit_threads
from starling.algorithms.compiled.policy import Policy
from starling.backends import get_backend
from starling.core.errors import ConfigError, DataError
from starling.core.machine import processors
from starling.core.spaces import Float, Int
from starling.data import EpisodeWriter, RecordedEpisode
from starling.experiments.config import resolve
from starling.experiments.program import assemble_for
from starling.records.checkpoints import Checkpoints
from starling.records.hashes import parameter_hash
from starling.records.run_dir import RunDir
from tests.experiments.commands import manifest
from tests.experiments.programs import finish, program_of
from tests.experiments.toys import Toy

FEW = {"hidden": [4], "batch_size": 4, "learning_starts": 8, "capacity": 100}


@pytest.mark.parametrize(
    ("obs", "learn", "act", "expected"),
    [
        ("vector", "auto", "auto", ("jax", "numpy")),
        ("image", "auto", "auto", ("torch", "torch")),
        ("vector", "torch", "auto", ("torch", "numpy")),
        ("vector", "auto", "jax", ("jax", "jax")),
        ("image", "jax", "numpy", ("jax", "numpy")),
    ],
)
def test_auto_lets_small_networks_act_on_numpy_and_convolutions_where_they_are_fast(obs, learn, act, expected):
    spaces = {"vector": Float((3,)), "image": Int((36, 36, 2), high=256, dtype="uint8")}
    assembly = assemble_for(resolve({"algo": "ppo", "preset": "none"}), spaces[obs], Int((), high=3))
    chosen = choose_backends(assembly, learn, act)
    assert (chosen.learn, chosen.act) == expected
    assert "parameters" in chosen.reason


def test_a_large_network_acts_where_it_learns():
    found = program_of(Toy, algo="dqn", dqn={"hidden": [512, 1024]})
    assert (found.backends.learn, found.backends.act) == ("torch", "torch")
    (role,) = found.formation
    assert found.policy(role).graph is found.learning_graph(role), "and is there once"
    found.close()


@pytest.mark.parametrize(("envs", "every", "updates"), [(1, 4, 1), (2, 4, 3), (4, 4, 1), (1, 1, 2)])
def test_updates_keep_pace_with_environment_steps(envs, every, updates):
    pace = {"envs": envs, "train_every": every, "updates": updates}
    _, heard = finish(program_of(Toy, algo="dqn", steps=80, dqn={**FEW, **pace}))
    rounds = [step for step in range(every, 81, every) if step >= 8]  # none before learning starts
    assert heard.values["updates"] == len(rounds) * updates
    assert heard.reports[-1][1] == 80


def test_a_run_reports_and_saves_at_the_steps_that_were_asked_for(tmp_path):
    settings = {"steps": 48, "log_every": 20, "checkpoint_every": 16, "a2c": {"hidden": [4], "envs": 2, "rollout": 4}}
    _, heard = finish(program_of(Toy, tmp_path, algo="a2c", **settings))
    assert [steps for _, steps in heard.checkpoints] == [0, 16, 32, 48], "the first before anything is learned"
    assert [steps for _, steps, _ in heard.reports] == [24, 48], "when a batch passes them"


@pytest.fixture
def acted_with(monkeypatch):
    """The versions of the weights that policies were given."""
    versions, load = [], Policy.load

    def noted(self, params, version):
        versions.append(version)
        load(self, params, version)

    monkeypatch.setattr(Policy, "load", noted)
    return versions


def test_the_acting_policy_has_the_newest_weights(acted_with):
    _, heard = finish(program_of(Toy, algo="dqn", steps=40, dqn={**FEW, "learning_starts": 4}))
    assert heard.values["updates"] == 10
    assert acted_with == [0, 0, *range(1, 10)], "as it is made, at the start, and with every update but the last"


def test_with_overlap_the_acting_policy_is_one_round_behind(acted_with):
    _, heard = finish(program_of(Toy, algo="dqn", steps=40, overlap=True, dqn={**FEW, "learning_starts": 4}))
    assert heard.values["updates"] == 10
    assert acted_with == [0, 0, *range(9)]


@pytest.mark.parametrize(("overlap", "lag"), [(False, 0.0), (True, 1.0)])
def test_experience_is_one_update_old_with_overlap_and_new_without(overlap, lag):
    settings = {"hidden": [4], "envs": 2, "rollout": 5}
    _, heard = finish(program_of(Toy, algo="a2c", steps=100, log_every=50, overlap=overlap, a2c=settings))
    assert (heard.values["lag_mean"], heard.values["lag_max"]) == (lag, lag)


def test_overlap_is_refused_where_roles_overlap_by_themselves():
    with pytest.raises(ConfigError, match=r"overlap=True has no effect in the formation sync.* It has one in single\."):
        program_of(algo="ppo", env="CartPole-v1", formation="sync", overlap=True)


def test_updates_are_refused_as_the_length_of_a_run_that_acts():
    with pytest.raises(ConfigError, match=r"updates=5 has no effect where dqn acts; give steps"):
        program_of(algo="dqn", updates=5)


def test_a_run_in_which_nobody_acts_is_as_long_as_its_updates(tmp_path):
    """The data set's policy always takes the second of two actions; so does whoever learns from it."""
    with EpisodeWriter(tmp_path / "data", Float((2,), -100, 100), Int((), high=2)) as writer:
        for number in range(3):
            obs = np.stack([np.arange(11, dtype=np.float32), np.full(11, number, np.float32)], axis=1)
            over = np.arange(10) == 9
            writer.write(RecordedEpisode(obs, np.ones(10, np.int32), np.ones(10), over, np.zeros(10, np.bool_), {}))
    small = {"data": str(tmp_path / "data"), "hidden": [8], "batch_size": 8, "learning_rate": 0.05}
    result = starling.train(
        "bc", Toy, updates=50, out=str(tmp_path / "run"), quiet=True, backend="torch", eval_episodes=2, bc=small
    )
    assert result.summary["updates"] == 50
    assert result.final_return == 10.0
    agent = starling.Agent.build("bc", Float((2,), -100, 100), Int((), high=2), backend="torch", **small)
    agent.set_weights(RunDir.open(tmp_path / "run", lock=False).load_policy()[0])
    assert (agent.act(np.array([[3, 1], [7, 2]], np.float32), explore=False) == 1).all()
    assert agent.update()
    with pytest.raises(DataError, match="bc learns from its data set alone"):
        agent.observe(1.0, np.zeros(2))


def test_threads_are_kept_to_one_where_work_is_small_or_roles_fill_the_machine(monkeypatch):
    asked = []
    monkeypatch.setattr(get_backend("torch"), "prefer_one_thread", lambda: asked.append(1), raising=False)
    small, large = (
        program_of(Toy, algo="dqn", dqn=sizes)
        for sizes in ({"hidden": [4]}, {"hidden": [2048, 2048], "batch_size": 256})
    )
    limit_threads(small.assembly, "torch")
    assert asked == [1]
    limit_threads(large.assembly, "torch", roles=1)
    assert asked == [1]
    limit_threads(large.assembly, "torch", roles=processors() + 1)
    assert asked == [1, 1]
    small.close()
    large.close()


def test_a_spec_takes_the_place_of_the_network_for_images():
    image = {"type": "cnn", "layers": [[2, 3, 2]], "size": 8}
    run = resolve({"algo": "ppo", "env": "CartPole-v1", "preset": "none", "ppo": {"image": image, "hidden": []}})
    pictures = Int((2, 12, 12), 0, 256, "uint8")
    assembly = assemble_for(run, pictures, Int((), 0, 3))
    scopes = {path.rsplit(".", 1)[0] for path in assembly.parameters}
    assert scopes == {"encoder.layers_1", "policy.head", "value.head"}  # one encoder for both
    assert assembly.parameters["encoder.layers_1.kernel0"].shape == (3, 3, 2, 2)


@pytest.mark.parametrize("algo", ["a2c", "dqn"])
def test_envpool_environments_train_and_say_that_resuming_is_not_exact(algo, tmp_path):
    pytest.importorskip("envpool")
    small = {"a2c": {"envs": 2}, "dqn": {"batch_size": 8, "learning_starts": 8}}[algo]
    settings = {"steps": 64, "quiet": True, "eval_episodes": 3, "backend": "torch", algo: {"hidden": [4], **small}}
    result = starling.train(algo, "envpool:CartPole-v1", out=str(tmp_path / "run"), **settings)
    assert result.summary["eval_episodes"] == 3
    assert manifest(tmp_path / "run")["resume_exact"] is False
    assert "cannot be put back" in manifest(tmp_path / "run")["resume_reason"]


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(
    ("algo", "settings"),
    [("dqn", {"learning_starts": 64, "batch_size": 16}), ("ppo", {"envs": 2, "rollout": 5, "minibatch": 10})],
)
def test_a_run_that_was_stopped_goes_on_exactly(algo, settings, overlap, tmp_path):
    settings = {"algo": algo, "env": "CartPole-v1", "steps": 400, "overlap": overlap, algo: {"hidden": [8], **settings}}
    whole, _ = finish(program_of(directory=tmp_path / "whole", **settings))
    cut, heard = finish(program_of(directory=tmp_path / "cut", **settings), stop_after=210)
    assert 210 <= heard.checkpoints[-1][1] < 400
    rest, _ = finish(program_of(directory=tmp_path / "cut", **settings), restore=True)
    assert parameter_hash(cut) != parameter_hash(whole) == parameter_hash(rest)
    states = [Checkpoints(tmp_path / name / "checkpoints").load()[0] for name in ("whole", "cut")]
    for state in states:
        assert ("published" in state) == overlap
        if overlap:
            assert state["published"]["version"] == state["learner"]["version"] - 1
    assert parameter_hash(states[0]) == parameter_hash(states[1]), "environments, noise and what is kept included"
