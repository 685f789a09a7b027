"""The code of docs/new-algorithm.md does what the page says."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "new-algorithm.md"


@pytest.fixture(scope="module")
def blocks():
    """The Python of the page: the algorithm, trying it, testing its loss."""
    found = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(found) == 3
    return found


@pytest.mark.parametrize("block", [1, 2], ids=["trying it", "testing its loss"])
def test_the_code_of_a_new_algorithm_runs(blocks, block, tmp_path):
    (tmp_path / "munchausen.py").write_text(blocks[0])
    (tmp_path / "script.py").write_text(blocks[block])
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-W", "error", "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr


def test_the_page_names_files_that_exist(blocks):
    ast.parse(blocks[0])
    algorithms = PAGE.parents[1] / "starling" / "algorithms"
    named = {
        name for name in re.findall(r"`(\w+\.py)`", PAGE.read_text()) if name not in {"munchausen.py", "tables.py"}
    }
    assert named
    assert [name for name in sorted(named) if not (algorithms / name).exists()] == []
