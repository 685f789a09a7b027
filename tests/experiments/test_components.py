"""Components in settings: as objects, as specs, and a framework's own modules by the name of their class."""

from __future__ import annotations

import json

import gymnasium as gym
import numpy as np
import pytest
import torch

import starling
from starling.components.networks.layers import MLP
from starling.components.networks.modules import as_component
from starling.core.errors import ConfigError
from starling.experiments.config import resolve
from starling.records.run_dir import RunDir

SMALL = {"steps": 128, "eval_episodes": 0, "quiet": True, "preset": "none"}
PPO = {"envs": 2, "rollout": 32, "minibatch": 32, "epochs": 1}


class Torso(torch.nn.Sequential):
    """What a user's package has."""

    def __init__(self, width: int = 8) -> None:
        torch.manual_seed(0)
        super().__init__(torch.nn.Linear(4, width), torch.nn.Tanh())


BY_NAME = {"type": "tests.experiments.test_components:Torso", "width": 6}


def trained(tmp_path, name, torso, **settings):
    given = {**SMALL, **settings, "out": str(tmp_path / name)}
    return starling.train("ppo", "CartPole-v1", ppo={**PPO, "torso": torso}, **given)


def test_an_object_is_the_same_as_its_spec(tmp_path):
    spec = {"type": "mlp", "sizes": [7], "activation": "relu"}
    one, other = trained(tmp_path, "object", MLP((7,), "relu")), trained(tmp_path, "spec", spec)
    assert one.summary["parameter_hash"] == other.summary["parameter_hash"] is not None
    assert resolve(config=one.directory / "config.yaml").algorithm.torso.sizes == (7,)


def test_a_module_plugs_into_a_run_by_the_name_of_its_class(tmp_path):
    whole = trained(tmp_path, "whole", BY_NAME, steps=256, overlap=False)
    assert (whole.summary["backend"], whole.summary["act_backend"]) == ("torch", "torch")
    weights, _ = RunDir.open(whole.directory, lock=False).load_policy()
    assert weights["policy"]["torso"]["0"]["weight"].shape == (6, 4)
    processes = trained(tmp_path, "sync", BY_NAME, formation="sync", actors=1, steps=256)
    assert processes.summary["parameter_hash"] == whole.summary["parameter_hash"]
    assert starling.evaluate(whole.directory, episodes=1).returns


def test_an_agent_takes_a_module_itself():
    env = gym.make("CartPole-v1")
    agent = starling.Agent.build(
        "dqn",
        env.observation_space,
        env.action_space,
        torso=as_component(Torso()),
        learning_starts=8,
        batch_size=8,
    )
    obs, _ = env.reset(seed=0)
    for _ in range(16):
        action = agent.act(obs[None])[0]
        obs, reward, over, cut, _ = env.step(action)
        agent.observe(float(reward), obs, over, cut)
        if over or cut:
            obs, _ = env.reset()
    before = np.array(agent.get_weights()["q"]["torso"]["0"]["weight"])
    assert agent.update() is not None
    assert (agent.get_weights()["q"]["torso"]["0"]["weight"] != before).any()


def test_a_run_refuses_a_module_that_no_configuration_can_hold(tmp_path):
    with pytest.raises(ConfigError, match=r"Torso arrived.*MyTorso.*starling\.Agent"):
        trained(tmp_path, "module", as_component(Torso()))
    assert not (tmp_path / "module").exists()


@pytest.mark.parametrize(
    ("torso", "message"),
    [
        (
            {"type": "tests.experiments.test_components:Torso", "widht": 3},
            r"\(Torso\): got an unexpected keyword argument 'widht'",
        ),
        ({"type": "tests.experiments.test_components:BY_NAME"}, "not a Component class"),
        (as_component, "expected a dict with a 'type'"),
        (7, "expected a dict with a 'type'"),
        (json.dumps({"type": "mlp", "sizes": "x"}), "a list"),
    ],
)
def test_what_is_no_component_is_refused(torso, message):
    with pytest.raises(ConfigError, match=message):
        resolve({"algo": "ppo", "ppo": {"torso": torso}})


def test_the_command_line_takes_a_component_as_json_or_a_file(tmp_path):
    from starling.cli.train import parse

    (tmp_path / "torso.yaml").write_text("type: mlp\nsizes: [5]\n")
    for given in ('{"type": "mlp", "sizes": [5]}', str(tmp_path / "torso.yaml")):
        assert parse(["--algo", "ppo", "--ppo.torso", given]).algorithm.torso.sizes == (5,)
