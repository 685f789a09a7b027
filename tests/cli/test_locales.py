"""Terminals that cannot show every character, and systems whose locale is not UTF-8."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from starling.cli.main import main
from starling.cli.output import PLAIN
from tests.cli.test_bad_input import TINY
from tests.experiments.commands import ROOT, TOYS

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
TOY = ["--algo", "a2c", "--env", f"{TOYS}:Toy-v0", "--steps", "64"]


def said(args, code=0, **variables):
    """What a command says where nothing but ASCII can be said."""
    command = [sys.executable, "-m", "starling.cli.main", *map(str, args)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | ASCII | variables
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=120)
    assert done.returncode == code, done.stderr.decode()
    assert b"Traceback" not in done.stderr
    return done.stdout.decode("ascii"), done.stderr.decode("ascii")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One that was trained where everything can be said."""
    run = tmp_path_factory.mktemp("runs") / "Größe"
    assert main(["train", *TOY, "--out", str(run), *TINY]) == 0
    return run


def test_what_a_run_wrote_in_utf_8_is_read_in_an_ascii_locale(run):
    assert "Größe" in (run / "config.yaml").read_text(encoding="utf-8")
    out, _ = said(["eval", run, "--episodes", "2"])
    assert "return 10.00 +- 0.00 over 2 greedy episodes" in out


def test_what_a_run_wrote_in_an_ascii_locale_is_read_in_utf_8(tmp_path, capsys):
    (tmp_path / "run.yaml").write_text("# Größe\neval_episodes: 2", encoding="utf-8")
    out, _ = said(["train", *TOY, "--out", tmp_path / "Größe", "--config", tmp_path / "run.yaml", *TINY[:-2]])
    assert "greedy return 10.0 +- 0.0 over 2 episodes" in out
    capsys.readouterr()
    assert main(["eval", str(tmp_path / "Größe"), "--episodes", "1", "--json"]) == 0
    assert '"mean": 10.0' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (["list"], "x 1"),
        (["formation", "apex"], "->"),
        (["graph", "--algo", "dqn"], "q_values"),
        (["check-env", f"{TOYS}:Toy-v0", "--steps", "50"], "ok "),
        (["train", "--help"], "--ppo.clip"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_signs_that_cannot_be_shown_are_replaced_by_ones_that_mean_the_same(args, shown):
    out, _ = said(args)
    assert shown in out


def test_a_failure_is_said_too(run):
    _, err = said(["eval", run.parent / "Größer"], code=2)
    assert "unknown run" in err


def test_bytes_that_are_no_text_can_be_named(tmp_path):
    _, err = said(["eval", os.fsdecode(os.fsencode(tmp_path) + b"/\xff")], code=2, PYTHONIOENCODING="utf-8")
    assert "unknown run" in err


def test_each_sign_has_one_of_ascii():
    assert all(len(sign) == 1 and not sign.isascii() and plain.isascii() for sign, plain in PLAIN.items())
