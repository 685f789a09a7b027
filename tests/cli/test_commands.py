"""Every command, as a user types it."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from starling import __version__
from starling.algorithms import ALGORITHMS
from starling.cli.main import COMMANDS
from starling.experience import PLANS
from starling.experiments.presets import PRESETS
from tests.experiments.commands import TOYS

TINY = ["--a2c.hidden", "4", "--a2c.envs", "2", "--a2c.rollout", "8", "--eval-episodes", "2", "--backend", "torch"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains_the_command(starling, command):
    said = starling(command, "--help")
    assert said.code == 0
    assert f"starling {command}" in said.out
    assert said.err == ""


def test_help_of_train_explains_the_settings_of_the_algorithm_that_is_asked_for(starling):
    said = starling("train", "--algo", "dqn", "--help")
    assert "--dqn.target-period" in said.out
    assert "copies to the target network" in said.out
    assert "--ppo" not in said.out
    assert "while it is computed" in " ".join(said.out.split()), "the settings of the run are explained too"


def test_no_command_shows_the_usage(starling):
    for args in (["--help"], ["-h"], ["help"], []):
        said = starling(*args)
        assert said.code == (0 if args else 2)
        assert all(command in said.out for command in COMMANDS)
    assert starling("--version").out == f"starling {__version__}\n"


def test_list_names_what_there_is(starling):
    said = starling("list")
    assert said.code == 0
    for name in (*ALGORITHMS, *PRESETS, *PLANS, "CartPole-v1", "mlp", "numpy"):
        assert name in said.out


def test_list_as_json_holds_the_same(starling):
    found = json.loads(starling("list", "--json").out)
    assert set(found) == {
        "algorithms", "components", "plans", "environments", "presets", "backends", "executors", "plugins",
        "formations", "compatibility", "problems",
    }  # fmt: skip
    assert set(found["algorithms"]) == set(ALGORITHMS)
    assert {"bc", "es", "r2d2", "reinforce"} <= set(found["algorithms"])
    assert "evolution" in found["formations"]
    assert [name for name, fits in found["compatibility"].items() if fits["evolution"] is None] == ["es"]
    assert [name for name, reason in found["compatibility"]["bc"].items() if reason is None] == ["single"]
    assert set(found["presets"]) == set(PRESETS)
    assert "CartPole-v1" in found["environments"]
    assert "mlp" in found["components"]


@pytest.mark.parametrize(("algo", "env"), [("dqn", "CartPole-v1"), ("sac", "Pendulum-v1")])
def test_graph_draws_as_text_and_as_a_picture(starling, algo, env, tmp_path):
    said = starling("graph", "--algo", algo, "--env", env)
    assert said.code == 0
    assert {"dqn": "q_values", "sac": "critics"}[algo] in said.out
    said = starling("graph", "--algo", algo, "--env", env, "--svg", tmp_path / "graph.svg")
    assert said.code == 0
    assert "parameters" in said.out
    picture = ElementTree.parse(tmp_path / "graph.svg").getroot()
    assert picture.tag.endswith("svg")
    words = "".join(picture.itertext())
    assert {"dqn": "torso", "sac": "policy"}[algo] in words


def test_graph_takes_the_network_of_a_configuration_file(starling, tmp_path):
    (tmp_path / "run.yaml").write_text("ppo:\n  torso: {type: mlp, sizes: [37]}\n")
    assert "37" in starling("graph", "--config", tmp_path / "run.yaml").out


def test_a_space_that_does_not_fit_draws_the_graph_and_marks_the_edge(starling, tmp_path):
    (tmp_path / "run.yaml").write_text("ppo:\n  torso: {type: nature_cnn}\n")
    said = starling("graph", "--config", tmp_path / "run.yaml", "--svg", tmp_path / "graph.svg")
    assert said.code == 2
    assert "component 'policy.torso' (NatureCNN), API '__call__', argument" in said.err
    ElementTree.parse(tmp_path / "graph.svg")
    again = starling("train", "--config", tmp_path / "run.yaml", "--out", tmp_path / "run")
    assert again.code == 2
    assert "policy.torso" in again.err
    assert not (tmp_path / "run").exists()


def test_check_env_finds_nothing_wrong_with_a_good_environment(starling):
    said = starling("check-env", "CartPole-v1", "--steps", "200")
    assert said.code == 0
    assert "✗" not in said.out


def test_check_env_explains_what_is_wrong(starling):
    said = starling("check-env", f"{TOYS}:Faulty-nan-v0", "--steps", "2000")
    assert said.code == 1
    assert "✗" in said.out
    assert "remedy:" in said.out
    found = json.loads(starling("check-env", f"{TOYS}:Faulty-nan-v0", "--steps", "2000", "--json").out)
    assert any(finding["level"] == "error" for finding in found)


def test_train_then_eval(starling, tmp_path):
    run = tmp_path / "run"
    said = starling("train", "--algo", "a2c", "--env", f"{TOYS}:Toy-v0", "--steps", "64", "--out", run, *TINY)
    assert said.code == 0
    assert "64 steps" in said.out
    for named in (run, run / "curve.png", "starling eval", "starling graph", "starling list"):
        assert str(named) in said.out
    assert "a2c on" in said.err, "progress"
    found = json.loads(starling("eval", run, "--episodes", "3", "--json").out)
    assert found == {"mean": 10.0, "std": 0.0, "returns": [10.0] * 3, "lengths": [10] * 3, "cut": 0}
    said = starling("eval", run, "--episodes", "3", "--seed", "4")
    assert said.code == 0
    assert "return 10.00 ± 0.00 over 3 greedy episodes" in said.out
    assert starling("eval", run, "--episodes", "0").code == 2


def test_quiet_training_says_nothing_while_it_runs(starling, tmp_path):
    args = ["--algo", "a2c", "--env", f"{TOYS}:Toy-v0", "--steps", "16", "--out", tmp_path / "run", "--quiet"]
    assert starling("train", *args, *TINY).err == ""
