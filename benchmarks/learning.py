"""Does it learn? Every algorithm on its yardstick, over several seeds, judged by greedy episodes.

    .venv/bin/python benchmarks/learning.py                    # all, 5 seeds on JAX, 2 on PyTorch
    .venv/bin/python benchmarks/learning.py --only ppo --seeds 2

Each run is a process of its own through the command line. Exits with 1 where a requirement is not met.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from starling.records.statistics import interquartile_mean


@dataclass(frozen=True)
class Yardstick:
    """An algorithm, an environment, the steps it gets, and the greedy return it must reach."""

    algo: str
    env: str
    steps: int
    least: float
    misses: int = 0  # seeds of five that may fall short


YARDSTICKS = (
    Yardstick("ppo", "CartPole-v1", 100_000, 475),
    Yardstick("a2c", "CartPole-v1", 500_000, 475),
    Yardstick("dqn", "CartPole-v1", 100_000, 475, misses=1),
    Yardstick("sac", "Pendulum-v1", 20_000, -200),
    Yardstick("ppo", "Acrobot-v1", 500_000, -100),
)


def final_return(yardstick: Yardstick, backend: str, seed: int, out: Path) -> tuple[float, float]:
    """Greedy return and training seconds of one run."""
    command = [
        sys.executable, "-m", "starling.cli.main", "train", "--quiet",
        "--algo", yardstick.algo, "--env", yardstick.env, "--steps", str(yardstick.steps),
        "--backend", backend, "--seed", str(seed), "--out", str(out), "--checkpoint-every", str(yardstick.steps),
    ]  # fmt: skip
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    summary = json.loads((out / "summary.json").read_text())
    return summary["final_return"], summary["seconds"]


def judge(yardstick: Yardstick, backend: str, seeds: int) -> bool:
    """Run the seeds and print a row."""
    found = []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            found.append(final_return(yardstick, backend, seed, Path(folder) / "run"))
    returns = [ret for ret, _ in found]
    short = sum(ret < yardstick.least for ret in returns)
    passed = short <= (yardstick.misses if seeds >= 5 else 0)
    seconds = sum(s for _, s in found) / seeds
    cell = " ".join(f"{ret:7.1f}" for ret in returns)
    title = f"{yardstick.algo:4} {yardstick.env:12} {yardstick.steps // 1000:4}k {backend:5}"
    verdict = f"≥ {yardstick.least:6.1f}  {seconds:6.1f} s  {'ok' if passed else 'FELL SHORT'}"
    print(f"{title}  {cell:40}  IQM {interquartile_mean(returns):7.1f}  {verdict}")
    sys.stdout.flush()
    return passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="one algorithm")
    parser.add_argument("--env", help="one environment")
    parser.add_argument("--backend", choices=["jax", "torch"], help="one backend")
    parser.add_argument("--seeds", type=int, default=5, help="on JAX; PyTorch gets at most two")
    arguments = parser.parse_args()
    passed = True
    for yardstick in YARDSTICKS:
        if arguments.only in (None, yardstick.algo) and arguments.env in (None, yardstick.env):
            for backend in [arguments.backend] if arguments.backend else ["jax", "torch"]:
                passed &= judge(yardstick, backend, arguments.seeds if backend == "jax" else min(2, arguments.seeds))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
