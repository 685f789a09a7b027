"""Fixtures of the tests of records."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def forbidden_directory():
    """A directory that this process may read, but not write to, even where the tests run as root."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o555)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    yield directory
    if root:
        os.seteuid(0)
    directory.chmod(0o755)
    shutil.rmtree(directory)
