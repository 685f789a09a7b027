"""Whatever a saved table, a journal or a message holds: it is used or refused, and nothing else happens.

That is: no crash, no hang, no memory, no file elsewhere, and no exception but the project's own.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from .data_inputs import SEED

ROOT = Path(__file__).parents[2]
FEW = ("saved tables=0:200", "durable logs=0:300", "messages=0:400", "connections=0:40")


def try_inputs(directory, *ranges):
    """Try them in another process, and print what came of it; a failure names the input that reproduces it."""
    command = [sys.executable, "-W", "error", "-m", "tests.chaos.data_inputs", str(directory), *ranges]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    print(done.stdout)
    if done.returncode:
        seed = (directory / SEED).read_text().strip() if (directory / SEED).exists() else "none yet"
        again = f"python -m tests.chaos.data_inputs DIRECTORY '{seed}'"
        pytest.fail(f"exit code {done.returncode} at {seed!r}: {again}\n{done.stderr[-4000:]}", pytrace=False)


def test_damaged_inputs_are_used_or_refused(tmp_path):
    try_inputs(tmp_path, *FEW)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["saved tables=0:20000", "durable logs=0:20000", "messages=0:20000"])
def test_twenty_thousand_damaged_inputs_are_used_or_refused(tmp_path, kind):
    try_inputs(tmp_path, kind)


@pytest.mark.slow
def test_a_server_survives_a_thousand_bad_clients(tmp_path):
    try_inputs(tmp_path, "connections=0:1000")
