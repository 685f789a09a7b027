"""A package from outside with one part of each kind: what our own parts can do, its can."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from starling.core.registry import KINDS
from tests.experiments.commands import ROOT, checkpoints, manifest, summary

HERE = Path(__file__).parent
DOCS = (ROOT / "docs" / "plugins.md").read_text()
SARSA = ["train", "--algo", "sample_sarsa", "--env", "sample_corridor:8", "--sample-sarsa.train-every", "16"]
QUICK = ["--backend", "torch", "--eval-episodes", "1", "--quiet"]
SUITES = {
    "algorithms": ["algorithms/test_contract.py", "algorithms/test_backends_agree.py"],
    "executors": ["executors/test_effects.py", "executors/test_conformance.py"],
    "others": ["experience/test_contract.py", "formations", "components/test_specs.py", "experiments/test_config.py"],
}
COMMANDS = """
import json, sys
from starling.cli.main import main
codes = [main(args) for args in json.loads(sys.argv[1])]
print(f"exit codes {codes}")
"""


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """Where the sample package is installed."""
    directory = tmp_path_factory.mktemp("plugins")
    shutil.copytree(HERE / "starling_sample", directory / "source")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(directory / "site"), "./source"]
    subprocess.run(command, cwd=directory, check=True)
    return directory / "site"


@pytest.fixture
def python(site, tmp_path):
    """Run Python where the sample is installed; ``meanwhile`` is told of the process."""

    def run(*args, cwd=tmp_path, meanwhile=None):
        path = os.pathsep.join(map(str, (ROOT, site, tmp_path)))
        command, environment = [sys.executable, *map(str, args)], os.environ | {"PYTHONPATH": path}
        pipe = subprocess.PIPE
        with subprocess.Popen(command, cwd=cwd, env=environment, text=True, stdout=pipe, stderr=pipe) as process:
            if meanwhile is not None:
                meanwhile(process)
            out, err = process.communicate(timeout=900)
        return process.returncode, out, err

    return run


@pytest.fixture
def starling(python):
    """Run commands of the command line, one after the other in one process; their exit codes are in its output."""

    def run(*commands, codes=None, meanwhile=None):
        args = json.dumps([[str(arg) for arg in command] for command in commands])
        code, out, err = python("-c", COMMANDS, args, meanwhile=meanwhile)
        assert code == 0, err
        assert f"exit codes {codes or [0] * len(commands)}" in out, err
        return out, err

    return run


def test_everything_is_listed_with_its_distribution(starling):
    found = json.loads(starling(["list", "--json"])[0].rpartition("exit codes")[0])
    assert {name.split()[0] for name in found["plugins"]} == set(KINDS)
    assert set(found["plugins"].values()) == {"from starling-sample"}
    assert found["problems"] == []
    assert found["algorithms"]["sample_sarsa"] == "Expected SARSA, for discrete actions."
    assert found["compatibility"]["sample_sarsa"]["sample_duo"] is None
    names = {name for entries in found.values() for name in entries}
    assert {"sample_gate", "sample_corridor", "sample_recent", "sample_duo", "sample_profiled"} < names
    assert "sample-corridor" in found["presets"]


def test_a_run_that_was_interrupted_and_resumed_is_the_run_that_was_not(starling, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    often = [*SARSA, *QUICK, "--steps", "3000", "--checkpoint-every", "100", "--sample-sarsa.epsilon", "0.3"]

    def interrupt(process):
        while process.poll() is None and not checkpoints(cut):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)

    commands = [*often, "--out", whole], [*often, "--out", cut], ["resume", cut]
    starling(*commands, codes=[0, 130, 0], meanwhile=interrupt)
    assert summary(whole)["parameter_hash"] == summary(cut)["parameter_hash"]
    assert manifest(whole)["resume_exact"]
    assert "epsilon: 0.3" in (cut / "config.yaml").read_text()


def test_its_formation_runs_on_processes_and_on_its_executor_to_the_same_parameters(starling, tmp_path):
    duo = [*SARSA, "--formation", "sample_duo", "--steps", "400", *QUICK, "--out"]
    starling([*duo, tmp_path / "processes"], [*duo, tmp_path / "profiled", "--executor", "sample_profiled"])
    one, other = summary(tmp_path / "processes"), summary(tmp_path / "profiled")
    assert (one["executor"], other["executor"]) == ("processes", "sample_profiled")
    assert one["parameter_hash"] == other["parameter_hash"]
    assert (tmp_path / "profiled" / "profile").exists()


def test_parts_of_ours_and_of_others_go_together(starling, tmp_path):
    (tmp_path / "run.yaml").write_text("dqn: {torso: {type: sample_gate, size: 8}, plan: sample_recent}\n")
    common = ["--config", tmp_path / "run.yaml", "--env", "sample_corridor", "--algo", "dqn"]
    few = ["--steps", "300", "--dqn.learning-starts", "64", "--env-workers", "1", *QUICK]
    drawn, _ = starling(["train", *common, *few, "--out", tmp_path / "run"], ["graph", *common])
    assert summary(tmp_path / "run")["updates"] > 0
    assert "Gate" in drawn


@pytest.mark.slow
def test_the_preset_learns(starling, tmp_path):
    starling(["train", "--preset", "sample-corridor", "--out", tmp_path / "run", *QUICK])
    assert summary(tmp_path / "run")["final_return"] > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES)
def test_its_parts_pass_the_contract_suites(suite, python):
    files = [f"tests/{each}" for each in SUITES[suite]]
    code, out, _ = python("-m", "pytest", "-v", "-p", "no:cacheprovider", "-k", "sample", *files, cwd=ROOT)
    assert code == 0, out
    assert int(re.search(r"(\d+) passed", out)[1]) >= 15


def test_a_program_s_own_parts_are_known_to_its_processes(python, tmp_path):
    shutil.copy(HERE / "my_parts.py", tmp_path)
    code, out, err = python(HERE / "program.py")
    assert code == 0, err
    assert out.startswith("patient ")


def test_a_part_of_the_main_module_works_in_it_and_is_refused_for_processes(python):
    program = """
import starling
from starling_sample.corridor import Corridor

class Mine(Corridor):
    pass

starling.register("environment", "mine", Mine)
for formation in ("single", "sync"):
    starling.train("a2c", "mine", formation=formation, steps=80, backend="torch", eval_episodes=0, quiet=True)
    print(formation, "went well")
"""
    code, out, err = python("-c", program)
    assert (code, out) == (1, "single went well\n")
    assert "ConfigError: Mine (in __main__) cannot be made in another process, which imports it" in err


def test_a_run_of_our_own_parts_searches_no_plugins_and_imports_no_other_algorithm(python):
    program = """
import sys
from starling.core.registry import _REGISTRIES
from starling.experiments.config import resolve
from starling.experiments.program import Program, remake

spec = Program(resolve({"preset": "none", "algo": "a2c", "formation": "sync"})).spec()
remake(spec)
assert spec["parts"] == []
assert [kind for kind, registry in _REGISTRIES.items() if "_offers" in vars(registry)] == []
assert "starling.algorithms.sac" not in sys.modules
"""
    assert python("-c", program) == (0, "", "")


def test_a_broken_plugin_is_named_and_nothing_else_suffers(starling, tmp_path):
    info = tmp_path / "acme_rl-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-rl\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[starling.algorithms]\nrocket = acme_rl:Rocket\nppo = acme_rl:PPO\n")
    commands = ["list"], ["train", "--algo", "rocket"], ["train", "--algo", "sample_srasa"]
    out, err = starling(*commands, codes=[0, 2, 2])
    assert "sample_sarsa" in out
    assert err.count("the algorithm 'rocket' of acme-rl (acme_rl:Rocket) cannot be loaded: ModuleNotFoundError") == 2
    assert "the algorithm 'ppo' of acme-rl is not used: Starling has one of that name" in err
    assert "Did you mean 'sample_sarsa'?" in err


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", DOCS, re.DOTALL)


@pytest.mark.parametrize("language", ["toml", "python", "yaml"])
def test_the_code_of_the_page_is_that_of_the_sample(language):
    files = [file.read_text() for file in HERE.rglob("*.*") if file.suffix in (".toml", ".py", ".yaml")]
    assert blocks(language)
    for block in blocks(language):
        assert any(block in file for file in files), block


def test_the_commands_of_the_page_run(starling):
    (commands,) = blocks("sh")
    starling(*(command.removeprefix("starling ").split() for command in commands.splitlines()))
