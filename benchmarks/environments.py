"""Virtual environments of the libraries that the benchmarks compare with, made on the first run and kept."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

__all__ = ["PEERS", "peer_python"]

PEERS = Path(__file__).parent / "peers"


def peer_python(directory: Path, name: str) -> Path:
    """The interpreter of a peer's environment, which is made where it is missing or its requirements changed."""
    requirements = PEERS / f"requirements-{name}.txt"
    home = directory.resolve() / name
    python, stamp = home / "bin" / "python", home / "requirements.txt"
    if not stamp.exists() or stamp.read_text() != requirements.read_text():
        print(f"setting up {name} in {home} (a few minutes)", file=sys.stderr, flush=True)
        venv.create(home, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--requirement", str(requirements)], check=True)
        stamp.write_text(requirements.read_text())
    return python
