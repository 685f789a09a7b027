"""The real command line, in this process or in one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TOYS = "tests.experiments.toys"

# Small enough that a run of some thousand steps is mostly start-up.
SMALL = {
    "a2c": ["--env", "CartPole-v1", "--a2c.hidden", "8", "--a2c.rollout", "16", "--a2c.envs", "4"],
    "dqn": [
        "--env",
        "CartPole-v1",
        "--dqn.hidden",
        "8",
        "--dqn.learning-starts",
        "100",
        "--dqn.train-every",
        "16",
        "--dqn.updates",
        "2",
        "--dqn.capacity",
        "1500",
        "--dqn.n-step",
        "3",
    ],
    "ppo": [
        "--env",
        "CartPole-v1",
        "--ppo.hidden",
        "8",
        "--ppo.epochs",
        "2",
        "--ppo.rollout",
        "32",
        "--ppo.envs",
        "4",
        "--ppo.minibatch",
        "64",
    ],
    "sac": [
        "--env",
        "Pendulum-v1",
        "--sac.hidden",
        "8",
        "--sac.train-every",
        "10",
        "--sac.batch-size",
        "16",
        "--sac.capacity",
        "1500",
    ],
}


def arguments(algo: str, out: Path, steps: int, *more: str) -> list[str]:
    """``train`` of a small run that evaluates little."""
    options = ["--steps", str(steps), "--out", str(out), "--eval-episodes", "2", "--seed", "5"]
    return ["train", "--algo", algo, *SMALL[algo], *options, *more]


def launch(args: list[str], **options: Any) -> subprocess.Popen[str]:
    """Start ``starling ARGS`` as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "starling.cli.main", *args], cwd=ROOT, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)}, **options,
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, output and errors."""
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def stop_at(process: subprocess.Popen[str], run: Path, step: int, number: int) -> None:
    """Send signal ``number`` once a checkpoint at or after ``step`` exists."""
    deadline = time.monotonic() + 900
    while not any(saved >= step for saved in checkpoints(run)):
        assert process.poll() is None, finish(process)
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.kill(process.pid, number)
    process.wait(timeout=120)


def checkpoints(run: Path) -> list[int]:
    return sorted(int(found.name.removeprefix("step-")) for found in (run / "checkpoints").glob("step-*"))


def summary(run: Path) -> dict[str, Any]:
    return json.loads((run / "summary.json").read_text())


def manifest(run: Path) -> dict[str, Any]:
    return json.loads((run / "manifest.json").read_text())


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
