"""Who learns and who acts, and how often."""

from __future__ import annotations

import pytest

from starling.backends import get_backend
from starling.core.errors import ConfigError
from starling.core.machine import processors
from starling.core.spaces import Int
from starling.experiments.backends import choose_backends, limit_threads
from starling.experiments.config import resolve
from starling.experiments.training import Training, assemble_for
from starling.records.hashes import parameter_hash
from tests.algorithms.cases import Case, assembled
from tests.experiments.toys import Toy


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
    chosen = choose_backends(assembled(Case("ppo", obs, "discrete")), learn, act)
    assert (chosen.learn, chosen.act) == expected
    assert "parameters" in chosen.reason


def training(**settings):
    return Training(resolve({"algo": "dqn", "env": "Toy", "backend": "torch", **settings}), Toy)


def test_a_large_network_acts_where_it_learns():
    found = training(dqn={"hidden": [512, 1024]})
    assert (found.backends.learn, found.backends.act) == ("torch", "torch")
    found.close()


@pytest.mark.parametrize(("envs", "every", "updates"), [(1, 4, 1), (2, 4, 3), (4, 4, 1), (1, 1, 2)])
def test_updates_keep_pace_with_environment_steps(envs, every, updates):
    small = {"hidden": [4], "batch_size": 4, "learning_starts": 8, "capacity": 100}
    run = training(dqn={**small, "envs": envs, "train_every": every, "updates": updates})
    while run.steps < 80:
        run.round()
    run.close()
    rounds = [step for step in range(every, 81, every) if step >= 8]  # none before learning starts
    assert run.learner.version == len(rounds) * updates


def test_the_acting_policy_has_the_newest_weights():
    run = training(dqn={"hidden": [4], "batch_size": 4, "learning_starts": 8})
    for _ in range(20):
        run.round()
    assert run.policy.version == run.learner.version > 0
    run.close()


def test_devices_are_chosen_and_checked():
    run = training(dqn={"hidden": [4]}, devices=["cpu:0"])
    assert run.graph.devices == ("cpu:0",)
    run.close()
    with pytest.raises(ConfigError, match="gpu:7"):
        training(devices=["gpu:7"])


def test_overlap_is_refused_where_roles_overlap_by_themselves():
    with pytest.raises(ConfigError, match=r"ppo\.overlap has no effect in sync"):
        resolve({"algo": "ppo", "env": "CartPole-v1", "formation": "sync", "ppo": {"overlap": True}})


def test_threads_are_kept_to_one_where_work_is_small_or_roles_fill_the_machine(monkeypatch):
    asked = []
    monkeypatch.setattr(get_backend("torch"), "prefer_one_thread", lambda: asked.append(1), raising=False)
    small = training(dqn={"hidden": [4]}).graph.assembly
    large = training(dqn={"hidden": [2048, 2048], "batch_size": 256}).graph.assembly
    asked.clear()
    limit_threads(small, "torch")
    assert asked == [1]
    limit_threads(large, "torch", roles=1)
    assert asked == [1]
    limit_threads(large, "torch", roles=processors() + 1)
    assert asked == [1, 1]


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
    import starling
    from tests.experiments.commands import manifest

    small = {"a2c": {"envs": 2}, "dqn": {"batch_size": 8, "learning_starts": 8}}[algo]
    settings = {"steps": 64, "quiet": True, "eval_episodes": 3, "backend": "torch", algo: {"hidden": [4], **small}}
    result = starling.train(algo, "envpool:CartPole-v1", out=str(tmp_path / "run"), **settings)
    assert result.summary["eval_episodes"] == 3
    assert manifest(tmp_path / "run")["resume_exact"] is False
    assert "cannot be put back" in manifest(tmp_path / "run")["resume_reason"]


@pytest.mark.parametrize(
    ("algo", "settings"),
    [("dqn", {"learning_starts": 64, "batch_size": 16}), ("ppo", {"envs": 2, "rollout": 5, "minibatch": 10})],
)
def test_overlapping_runs_lag_by_one_round_and_go_on_exactly(algo, settings):
    settings = {"hidden": [8], "overlap": True, **settings}
    run = resolve({"algo": algo, "env": "CartPole-v1", "preset": "none", algo: settings})
    whole, first, second = Training(run), Training(run), Training(run)
    while whole.steps < 400:
        whole.round()
    assert whole.policy.version == whole.learner.version - 1
    while first.steps < 210:
        first.round()
    second.restore(first.state())
    while second.steps < 400:
        second.round()
    assert parameter_hash(second.learner.weights()) == parameter_hash(whole.learner.weights())
    assert parameter_hash(second.policy.weights["params"]) == parameter_hash(whole.policy.weights["params"])
    for training in (whole, first, second):
        training.close()
