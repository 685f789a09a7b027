"""Bad requests and failed runs: a clear message, the right exit code, nothing lost."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from itertools import pairwise

import numpy as np
import pytest

from starling.core.errors import RequestError
from starling.experiments.config import resolve
from starling.experiments.program import Program
from starling.records import checkpoint
from starling.records.checkpoints import Checkpoints
from tests.experiments.commands import ROOT, TOYS, arguments, checkpoints, finish, launch, summary

BOMB = "a: &a [x]\n" + "\n".join(f"{b}: &{b} [{', '.join(9 * [f'*{a}'])}]" for a, b in pairwise("abcdefghi"))
TINY = ["--a2c.hidden", "4", "--a2c.envs", "2", "--a2c.rollout", "8", "--quiet", "--eval-episodes", "1"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["tarin"], "unknown command 'tarin'. Did you mean 'train'?"),
        (["train", "--algo", "pqo"], "unknown algorithm 'pqo'. Did you mean 'ppo'?"),
        (["train", "--env", "CartPol-v1"], "Did you mean 'CartPole-v1'?"),
        (["train", "--env", "nowhere:Toy-v0"], "nowhere"),
        (["train", "--ppo.learning-rte", "1"], "--ppo.learning-rate"),
        (["train", "--sseed", "1"], "--seed"),
        (["train", "--devices", "cuda:0"], "--devices.learner"),
        (["train", "--devices.lerner", "cuda:0"], "--devices.learner"),
        (["train", "--devices.learner", "cuda:0,cuda:0"], "devices.learner='cuda:0,cuda:0' names cuda:0 twice"),
        (["train", "--devices.learner", "tpu:3"], "device 'tpu:3' is not there; jax sees: cpu:0"),
        (["train", "--steps", "0"], "steps=0; it must be at least 1"),
        (["train", "--steps", "many"], "many"),
        (["train", "--steps", "1" + 30 * "0"], f"steps=1{30 * '0'}; it must be at most 9,223,372,036,854,775,807"),
        (["train", "--seed", str(2**63)], f"seed={2**63}; it must be at most 9,223,372,036,854,775,807"),
        (["train", "--formation", "sync", "--queue", str(10**25)], "it must be at most 9,223,372,036,854,775,807"),
        (["train", "--ppo.hidden", "64", str(10**25)], "hidden="),
        (["train", "--algo", "dqn", "--dqn.capacity", str(10**25)], "capacity="),
        (["train", "--preset", "apex-dqn", "--samples-per-insert", "nan"], "samples_per_insert=nan; it must be"),
        (
            ["train", "--preset", "apex-dqn", "--samples-per-insert", "inf"],
            "samples_per_insert=inf; it must be a finite",
        ),
        (["train", "--formation", "sync", "--env-timeout", "nan"], "env_timeout=nan; it must be"),
        (["train", "--formation", "sync", "--env-timeout", "inf"], "env_timeout=inf; it must be a finite number"),
        (["train", "--formation", "sync", "--heartbeat", "nan"], "heartbeat=nan; it must be"),
        (["train", "--formation", "sync", "--heartbeat", "inf"], "heartbeat=inf; it must be a finite number"),
        (["train", "--formation", "central_inference", "--inference-wait", "nan"], "inference_wait=nan; it must be"),
        (["train", "--formation", "central_inference", "--inference-wait", "inf"], "inference_wait=inf; it must be a"),
        (["train", "--algo", "sac", "--env", "Pendulum-v1", "--sac.target-entropy", "nan"], "target_entropy=nan; it"),
        (["train", "--seed", "-1"], "seed=-1"),
        (["train", "--backend", "tensorflow"], "tensorflow"),
        (["train", "--ppo.gamma", "1.5"], "gamma=1.5; it must be from 0 to 1"),
        (["train", "--ppo.hidden", "64", "0"], "hidden=(64, 0)"),
        (["train", "--ppo.minibatch", "7"], "does not divide"),
        (["train", "--ppo.activation", "tanhh"], "unknown activation"),
        (["train", "--algo", "dqn", "--env", "Pendulum-v1"], "dqn chooses one of several actions"),
        (["train", "--algo", "sac", "--env", "CartPole-v1"], "sac needs a vector of bounded"),
        (["train", "--preset", "ppo-cartpol"], "Did you mean 'ppo-cartpole'?"),
        (["train", "--summaries", "ppo.los.*"], "unknown value 'ppo.los.*' in summaries"),
        (["train", "--algo", "dqn", "--dqn.capacity", "10000000000"], "Lower the capacity"),
        (["train", "--config", "none.yaml"], "cannot read none.yaml"),
        (["train", "--algo"], "--algo"),
        (["resume", "none"], "unknown run 'none'"),
        (["eval", "none"], "unknown run 'none'"),
        (["eval"], "run"),
        (["graph", "--svg", "none/graph.svg"], "cannot write none/graph.svg"),
        (["graph", "--algo", "pqo"], "Did you mean 'ppo'?"),
        (["check-env", "CartPol-v1"], "Did you mean 'CartPole-v1'?"),
    ],
)
def test_a_request_that_cannot_be_met_exits_with_2(starling, args, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = starling(*args)
    assert said.code == 2
    assert message in said.err
    assert os.listdir(tmp_path) == [], "nothing is left behind"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1", "holds list; settings are a mapping"),
        ("stpes: 5", "Did you mean 'steps'?"),
        ("ppo: {gama: 1}", "Did you mean 'gamma'?"),
        ("steps: -4", "steps=-4"),
        ("a: [", "is not valid YAML"),
        ("ppo: {torso: {type: mpl}}", "Did you mean 'mlp'?"),
        ("devices: ['cuda:0']", "run.devices: ['cuda:0'] (list) arrived; expected a dict"),
        ("devices: {learner: 0}", "devices.learner=0; a list of devices was expected, such as [cuda:0, cuda:1]"),
        ("devices: {learner: gpu}", "unknown kind of device 'gpu' in devices.learner='gpu'"),
        ("devices: {lerner: cpu}", "unknown role with devices 'lerner' in single. Did you mean 'learner'?"),
        (
            "{formation: sync, devices: {worker: cpu}}",
            "unknown role with devices 'worker' in sync. Known: actor, learner.",
        ),
        ("{formation: sync, devices: {learner: [tpu:9]}}", "device 'tpu:9' is not there; jax sees: cpu:0"),
        ("devices: {learner: tpu:9}", "device 'tpu:9' is not there; jax sees: cpu:0"),
        ("{formation: sync, devices: {actor: cpu:1}}", "device 'cpu:1' is not there; numpy sees: cpu:0"),
        ("env_options: {wheels: 3}", "wheels"),
        ("out: 2020-99-99", "'2020-99-99' is read as a timestamp, which no setting is; write it in quotes"),
        ("env_options: {since: 2020-01-31}", "'2020-01-31' is read as a timestamp"),
        ("steps: 1" + 30 * "0", "line 1: '1000000000000000000000000000000' lies beyond 9,223,372,036,854,775,807"),
        ("steps: " + 5_000 * "9", "lies beyond 9,223,372,036,854,775,807"),
        ("steps: 1e30", "steps=1000000000000000019884624838656; it must be at most 9,223,372,036,854,775,807"),
        ("ppo: {learning_rate: 1e400}", "learning_rate=inf; it must be"),
        ("ppo: {gamma: .nan}", "gamma=nan; it must be"),
        ("ppo: " + 5_000 * "[", "it nests deeper than 50 levels"),
        ("ppo: &a {torso: *a}", "the alias a repeats what it is part of"),
        (BOMB, "it stands for more than 50,000 values"),
    ],
)
def test_a_bad_configuration_file_exits_with_2(starling, text, message, tmp_path):
    (tmp_path / "run.yaml").write_text(text)
    said = starling("train", "--config", tmp_path / "run.yaml", "--out", tmp_path / "run")
    assert said.code == 2
    assert message in said.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "settings",
    [
        {"steps": 10**400},
        {"seed": 2**63},
        {"steps": 16**6000},
        {"heartbeat": 10**400},
        {"ppo": {"gamma": 10**400}},
        {"ppo": {"hidden": [64, 10**400]}},
        {"ppo": {"learning_rate": {"type": "linear", "start": 10**400, "end": 0.0}}},
        {"ppo": {"torso": '{"type": "mlp", "sizes": [1e400]}'}},
        {"ppo": {"torso": '{"type": "mlp", "sizes": ' + "[" * 5_000}},
        {"ppo": {"torso": '{"type": "mlp", "sizes": [' + "9" * 5_000 + "]}"}},
    ],
    ids=range(10),
)
def test_numbers_beyond_all_bounds_are_refused_where_a_program_gives_them(settings):
    with pytest.raises(RequestError):
        Program(resolve(settings)).close()


@pytest.mark.parametrize("fault", ["raises", "nan", "shape", "dtype"])
def test_an_environment_that_breaks_its_promises_fails_the_run_and_keeps_the_checkpoint(starling, fault, tmp_path):
    env = f"{TOYS}:Faulty-{fault}-v0"
    args = ["--algo", "a2c", "--env", env, "--out", tmp_path / "run", "--checkpoint-every", "500", "--steps", "100000"]
    said = starling("train", *args, *TINY)
    assert said.code == 1
    assert f"{env}, environment 0, episode seed" in said.err
    assert "step 4 of the episode" in said.err
    assert ("toys.py" in said.err and "the wheel came off" in said.err) == (fault == "raises")
    assert summary(tmp_path / "run")["status"] == "failed"
    state, meta = Checkpoints(tmp_path / "run" / "checkpoints").load()
    assert meta["step"] >= 1500
    assert state["collector"]["steps"] == meta["step"]


def test_an_environment_that_fails_at_once_fails_the_run(starling, tmp_path, monkeypatch):
    import gymnasium as gym

    from tests.experiments.toys import Faulty

    monkeypatch.setitem(
        gym.registry,
        "Early-v0",
        gym.envs.registration.EnvSpec("Early-v0", Faulty, kwargs={"fault": "raises", "episode": 1}),
    )
    said = starling("train", "--algo", "a2c", "--env", "Early-v0", "--out", tmp_path / "run", *TINY)
    assert said.code == 1
    assert "Early-v0, environment 0, episode seed" in said.err
    assert "the wheel came off" in said.err


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A run that failed after several checkpoints: two are kept."""
    from starling.cli.main import main

    run = tmp_path_factory.mktemp("runs") / "run"
    args = [
        "train",
        "--algo",
        "a2c",
        "--env",
        f"{TOYS}:Faulty-raises-v0",
        "--out",
        str(run),
        "--checkpoint-every",
        "500",
    ]
    assert main([*args, "--steps", "100000", *TINY]) == 1
    assert len(checkpoints(run)) == 2
    return run


@pytest.fixture
def run(interrupted, tmp_path):
    """A copy of it, to spoil."""
    return shutil.copytree(interrupted, tmp_path / "run")


def newest(run):
    return max((run / "checkpoints").glob("step-*"))


def tear(path):
    arrays = next(path.glob("*.safetensors"))
    arrays.write_bytes(arrays.read_bytes()[: arrays.stat().st_size // 2])


@pytest.mark.parametrize("command", ["resume", "eval"])
def test_a_torn_checkpoint_is_passed_over_for_the_one_before(starling, command, run):
    steps = checkpoints(run)
    tear(newest(run))
    said = starling(command, run)
    if command == "eval":
        assert said.code == 0
    else:  # the environment fails again, a little later, with what came before kept
        assert said.code == 1
        assert "the wheel came off" in said.err
        assert checkpoints(run)[-1] >= steps[0]


@pytest.mark.parametrize("command", ["resume", "eval"])
def test_no_checkpoint_that_can_be_loaded_is_a_failure_that_says_why(starling, command, run):
    for path in (run / "checkpoints").glob("step-*"):
        tear(path)
    before = checkpoints(run)
    said = starling(command, run)
    assert said.code == 1
    assert "torn" in said.err
    assert checkpoints(run) == before
    shutil.rmtree(run / "checkpoints")
    said = starling("eval", run)
    assert said.code == 1
    assert "no checkpoint" in said.err


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"learner": 5},
        {"learner": {"version": 1, "learned": {"params": np.zeros(3)}, "rng": {}}},
        {"learner": {"version": "many", "learned": {}, "rng": {"counter": 1}}},
        [1, 2],
    ],
)
@pytest.mark.parametrize("command", ["resume", "eval"])
def test_a_checkpoint_that_holds_something_else_is_refused(starling, command, state, run):
    step = checkpoints(run)[-1]
    checkpoint.save(run / "checkpoints", newest(run).name, state, {"step": step, "seconds": 1.0})
    said = starling(command, run)
    assert said.code == 1
    assert "checkpoint" in said.err
    Checkpoints(run / "checkpoints").load(checkpoints(run)[0])  # the earlier one is still there


@pytest.mark.parametrize("part", ["collector", "cadence", "counters"])
def test_a_checkpoint_of_which_a_part_is_something_else_is_refused(starling, part, run):
    step = checkpoints(run)[-1]
    state, meta = Checkpoints(run / "checkpoints").load()
    checkpoint.save(run / "checkpoints", newest(run).name, {**state, part: 5}, meta)
    said = starling("resume", run)
    assert said.code == 1
    assert "the checkpoint of learner-0 is not a state that it can go on from" in said.err
    assert summary(run)["status"] == "failed"
    assert checkpoints(run)[-1] == step


@pytest.mark.parametrize(("command", "code", "message"), [("resume", 2, "leads out of"), ("eval", 1, "not followed")])
def test_a_malicious_checkpoint_runs_nothing(starling, command, code, message, run, tmp_path):
    for path in (run / "checkpoints").glob("step-*"):
        arrays = next(path.glob("*.safetensors"))
        arrays.unlink()
        arrays.symlink_to("/etc/passwd")
    said = starling(command, run)
    assert said.code == code
    assert message in said.err
    for path in (run / "checkpoints").glob("step-*"):
        next(path.glob("*.safetensors")).unlink()
        (path / "extra.pkl").write_bytes(b"cos\nsystem\n(S'touch owned'\ntR.")
    assert starling(command, run).code == 1
    assert not os.path.exists("owned")


FOLDERS = ["checkpoints", "roles", "logs", "tensorboard", "record", "policy", "scratch"]
WRITTEN = ["metrics.jsonl", "curve.png", "status.json", "summary.json", ".lock", ".lock.json", "tensorboard/events.out"]


@pytest.mark.parametrize("name", [*FOLDERS, *WRITTEN])
def test_resuming_follows_no_link_out_of_the_run_directory(starling, name, run, tmp_path):
    outside = tmp_path / "outside"
    (run / name).parent.mkdir(exist_ok=True)
    if (run / name).exists():
        shutil.move(run / name, outside)
    elif name in FOLDERS:
        outside.mkdir()
    else:
        outside.write_text("mine")
    (run / name).symlink_to(outside)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    said = starling("resume", run)
    assert said.code == 2
    assert f"{run / name} is a link to {outside}, which leads out of {run}" in said.err
    assert "put what it leads to in its place" in said.err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["config.yaml", "manifest.json"])
def test_a_run_directory_with_a_spoilt_file_is_refused(starling, name, run):
    for spoilt in ("{", "[1]", "\x00\x01"):
        (run / name).write_text(spoilt)
        said = starling("resume", run)
        assert said.code == 2
        assert name in said.err
    (run / name).unlink()
    assert starling("eval", run).code == 2


@pytest.mark.parametrize(
    "damage",
    [b"{\n", b"\xff\xfe\n", 100_000 * b"[" + b"\n", b'{"env_steps": 5, "seconds": "x"}\n', 5_000 * b"9" + b"\n"],
)
def test_damaged_metrics_are_refused_where_they_are_needed(starling, run, damage):
    path, before = run / "metrics.jsonl", checkpoints(run)
    path.write_bytes(damage + path.read_bytes())
    for command in ("resume", "doctor"):
        said = starling(command, run)
        assert said.code == 2
        assert f"{path}, line 1, is no report, yet reports follow; mend or remove it." in said.err
    assert starling("eval", run, "--episodes", "1").code == 0
    assert checkpoints(run) == before


@pytest.mark.parametrize(
    ("command", "name"), [("resume", "summary.json"), ("doctor", "summary.json"), ("doctor", "status.json")]
)
def test_damaged_facts_are_refused(starling, run, command, name):
    for damage in (b"[1]", b"{", b"{}", b'{"status": 5}', b'{"roles": [{}]}', 100_000 * b"["):
        (run / name).write_bytes(damage)
        said = starling(command, run)
        assert said.code == 2
        assert name in said.err


def test_a_directory_that_cannot_be_made_is_refused(starling, tmp_path):
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "run", tmp_path / "none" / "run", "/proc/run"):
        said = starling("train", "--out", out)
        assert said.code == 2
        assert str(os.path.dirname(out)) in said.err
    assert (tmp_path / "file").read_text() == "mine"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    assert starling("train", "--out", tmp_path / "full").code == 2
    assert os.listdir(tmp_path / "full") == ["thesis.txt"]


@pytest.mark.parametrize("most", [16, 24])
def test_too_few_descriptors_are_a_failure_that_says_so(most, tmp_path):
    starling = [sys.executable, "-m", "starling.cli.main", "train", "--formation", "sync", "--steps", "300", "--quiet"]
    limited = ["bash", "-c", f'ulimit -n {most}; exec "$@"', "bash", *starling, "--out", str(tmp_path / "run")]
    done = subprocess.run(limited, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr
    assert "starling: no more files can be opened here. Allow more (`ulimit -n 4096`)" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_full_disk_fails_the_run_and_keeps_the_last_checkpoint(tmp_path):
    """A limit on the size of files stands for the disk; the growing replay table meets it first."""
    run = tmp_path / "run"
    process = launch(
        arguments("dqn", run, 1_000_000, "--quiet", "--checkpoint-every", "300", "--dqn.capacity", "50000")
    )
    while not any(step >= 300 for step in checkpoints(run)):
        assert process.poll() is None, finish(process)
        time.sleep(0.01)
    size = sum(file.stat().st_size for file in newest(run).iterdir())
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    code, _, err = finish(process)
    assert code == 1, err
    assert "limit is reached" in err
    assert "Make room" in err
    assert "Traceback" not in err
    state, meta = Checkpoints(run / "checkpoints").load()
    assert meta["step"] >= 300
    assert state["learner"]["version"] > 0
    assert summary(run)["status"] == "failed"
