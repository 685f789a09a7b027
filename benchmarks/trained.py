"""Training runs through the command line, each in processes of its own, and what they wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Trained", "starling", "train"]

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Trained:
    """What a run wrote: its summary, and its metrics line by line."""

    summary: dict[str, Any]
    lines: list[dict[str, Any]]

    @property
    def speed(self) -> float:
        """Steps a second between the first fifth of the run, which compiles, and its end."""
        first, last = self.lines[len(self.lines) // 5], self.lines[-1]
        return (last["env_steps"] - first["env_steps"]) / (last["seconds"] - first["seconds"])


def starling(*arguments: str, about: str = "", checkout: Path | None = None) -> None:
    """Run a command of ``starling``, of another checkout if one is given, which must succeed; environments defined
    beside this file are found."""
    path = os.pathsep.join(filter(None, [str(checkout or ""), str(HERE), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "starling.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    if done.returncode:
        raise SystemExit(f"{about or ' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}")


def train(settings: Mapping[str, Any], out: Path | None = None, checkout: Path | None = None) -> Trained:
    """Run ``starling train`` with these settings."""
    if out is None:
        with tempfile.TemporaryDirectory() as directory:
            return train(settings, Path(directory) / "run", checkout)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
        json.dump(dict(settings), config)  # which is YAML, too
        config.flush()
        starling(
            "train",
            "--quiet",
            "--config",
            config.name,
            "--out",
            str(out),
            about=f"a run with {dict(settings)}",
            checkout=checkout,
        )
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return Trained(json.loads((out / "summary.json").read_text()), lines)
