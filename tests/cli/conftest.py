"""The command line in this process."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from starling.cli.main import main


@dataclass(frozen=True)
class Said:
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str


@pytest.fixture
def starling(capsys):
    """Run ``starling ARGS``; whatever happens, nobody should be shown a traceback."""

    def run(*args: object) -> Said:
        try:
            code = main([str(arg) for arg in args])
        except SystemExit as leaving:
            code = leaving.code
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return Said(code, said.out, said.err)

    return run
