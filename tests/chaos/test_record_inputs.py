"""Whatever a checkpoint, a record, a configuration or a run's other files hold: it is used or refused, and no more.

That is: no crash, no hang, no memory, no file elsewhere, and no exception but the project's own.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from .record_inputs import INPUTS, SEED

ROOT = Path(__file__).parents[2]


def try_inputs(directory, *ranges):
    """Try them in another process, and print what came of it; a failure names the input that reproduces it."""
    command = [sys.executable, "-W", "error", "-m", "tests.chaos.record_inputs", str(directory), *ranges]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    print(done.stdout)
    if done.returncode:
        seed = (directory / SEED).read_text().strip() if (directory / SEED).exists() else "none yet"
        again = f"python -m tests.chaos.record_inputs DIRECTORY '{seed}'"
        pytest.fail(f"exit code {done.returncode} at {seed!r}: {again}\n{done.stderr[-4000:]}", pytrace=False)


def test_damaged_files_are_used_or_refused(tmp_path):
    try_inputs(tmp_path, "checkpoints=0:400", "records=0:400", "configurations=0:150", "run files=0:400")


@pytest.mark.slow
@pytest.mark.parametrize("kind", INPUTS)
def test_twenty_thousand_damaged_files_are_used_or_refused(tmp_path, kind):
    try_inputs(tmp_path, f"{kind}=0:20000")
