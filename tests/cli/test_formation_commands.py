"""Commands for formations: draw one, list what fits, and replay a recorded run."""

from __future__ import annotations

import json
import os
from xml.etree import ElementTree

import pytest

from starling.algorithms import ALGORITHMS
from starling.experiments.compatibility import compatibility
from starling.formations import FORMATIONS


@pytest.mark.parametrize("name", FORMATIONS)
def test_formation_draws_each(starling, name, tmp_path):
    said = starling("formation", name)
    assert said.code == 0
    assert FORMATIONS[name].text in said.out
    assert "■ ends the run" in said.out
    said = starling("formation", name, "--svg", tmp_path / "drawn.svg")
    assert said.code == 0
    assert ElementTree.parse(tmp_path / "drawn.svg").getroot().tag.endswith("svg")


def test_formation_takes_counts(starling):
    said = starling("formation", "apex", "--actors", "8", "--buffers", "2", "--queue", "5")
    assert "actor × 8" in said.out
    assert "buffer × 2" in said.out
    assert "queue of 5" in said.out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["apx"], "unknown formation 'apx'. Did you mean 'apex'?"),
        (["apex", "--actors", "0"], "actors=0; it must be from 1 to 100000"),
        (["apex", "--actors", "-1"], "actors=-1"),
        (["apex", "--actors", "many"], "many"),
        (["apex", "--servers", "2"], "servers=2 has no effect in the formation apex"),
        (["sync", "--overlap", "True"], "overlap=True has no effect in the formation sync"),
        (["central_inference", "--actors", "3", "--inference-servers", "2"], "use a multiple of both"),
        (["sync", "--actors", "2", "--batch-chunks", "3"], "use a multiple, such as 4"),
        (["actor_learner", "--actors", "3", "--learners", "2"], "use a multiple"),
        (["apex", "--actor", "2"], "--actors"),
        (["apex", "--svg", "none/apex.svg"], "cannot write none/apex.svg"),
        ([], "NAME"),
    ],
)
def test_a_formation_that_makes_no_sense_is_refused(starling, args, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = starling("formation", *args)
    assert said.code == 2
    assert message in said.err
    assert os.listdir(tmp_path) == []


def test_list_shows_which_algorithm_fits_which_formation_and_why_not(starling):
    said = starling("list", "--formations")
    assert said.code == 0
    words = " ".join(said.out.split())
    for kind in FORMATIONS.values():
        assert kind.text in said.out
    assert "--samples-per-insert None" in words
    assert "--overlap False" in words
    rows = {
        line.split()[0]: line for line in said.out.splitlines() if line.split()[:1] and line.split()[0] in ALGORITHMS
    }
    for algorithm, fits in compatibility().items():
        assert rows[algorithm].count("✓") == sum(reason is None for reason in fits.values())
        assert rows[algorithm].count("✗") == sum(reason is not None for reason in fits.values())
        for reason in filter(None, fits.values()):
            assert reason in words
    assert "CartPole-v1" not in said.out, "environments are listed elsewhere"
    assert all(name in starling("list").out for name in FORMATIONS)


def test_settings_that_make_a_formation_what_it_is_are_not_offered(starling):
    found = json.loads(starling("list", "--formations", "--json").out)
    assert set(found) == {"formations", "compatibility", "problems"}
    assert found["formations"]["sync"]["settings"] == {"actors": 2, "evaluators": 0, "batch_chunks": None}
    assert found["formations"]["single"]["settings"] == {"overlap": False}
    assert found["formations"]["actor_learner"]["settings"]["max_lag"] is None
    assert found["compatibility"] == compatibility()


def test_a_recorded_run_is_replayed_and_compared(starling, tmp_path):
    run = tmp_path / "run"
    tiny = ["--impala.hidden", "4", "--impala.envs", "2", "--impala.rollout", "8", "--eval-episodes", "1", "--quiet"]
    args = ["--algo", "impala", "--preset", "none", "--formation", "actor_learner", "--steps", "400", *tiny]
    said = starling("train", *args, "--backend", "torch", "--record", "--out", run)
    assert said.code == 0
    assert "actor_learner on processes" in said.out
    for command in ("doctor", "replay"):
        assert f"starling {command} {run}" in said.out
    said = starling("replay", run, "--quiet")
    assert said.code == 0
    assert "the same, bit for bit" in said.out
    assert starling("eval", run, "--episodes", "1").code == 0

    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps({**summary, "parameter_hash": "0" * 64}))
    said = starling("replay", run, "--quiet")
    assert said.code == 1
    assert "they differ" in said.out

    choices = run / "record" / "learner-0.0"
    recorded = choices.read_bytes()
    for damage in (b'["take", 7]\n', b"\xff\n", b"5\n"):
        choices.write_bytes(damage + recorded)
        said = starling("replay", run, "--quiet")
        assert said.code == 1
        assert f"{choices}, line 1, is no choice, yet choices follow; mend or remove it." in said.err
    choices.write_bytes(recorded[:32])
    assert starling("replay", run, "--quiet").code == 1
    choices.unlink()
    said = starling("replay", run, "--quiet")
    assert said.code == 1
    assert "has no record of learner-0" in said.err
