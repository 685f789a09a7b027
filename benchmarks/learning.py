"""Does it learn? Every algorithm on its yardstick, over several seeds, judged by greedy episodes.

    .venv/bin/python benchmarks/learning.py                    # algorithms, 5 seeds on JAX, 2 on PyTorch
    .venv/bin/python benchmarks/learning.py --only ppo --seeds 2
    .venv/bin/python benchmarks/learning.py --formations       # formations on processes
    .venv/bin/python benchmarks/learning.py --presets          # presets that no other yardstick uses

Each run has processes of its own, through the command line. Exits with 1 where a requirement is not met.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from typing import Any

from trained import train

from starling.records.statistics import interquartile_mean


@dataclass(frozen=True)
class Yardstick:
    """What to train, and the greedy return it must reach."""

    title: str
    settings: dict[str, Any] = field(repr=False)
    least: float
    misses: int = 0  # seeds of five that may fall short


def algorithm(algo: str, env: str, steps: int, least: float, misses: int = 0) -> Yardstick:
    settings = {"algo": algo, "env": env, "steps": steps, "checkpoint_every": steps}
    return Yardstick(f"{algo} {env} {steps // 1000}k", settings, least, misses)


def formation(title: str, **settings: Any) -> Yardstick:
    return Yardstick(title, settings, 475)


def preset(name: str, least: float) -> Yardstick:
    return Yardstick(name, {"preset": name}, least)


ALGORITHMS = (
    algorithm("ppo", "CartPole-v1", 100_000, 475),
    algorithm("a2c", "CartPole-v1", 500_000, 475),
    algorithm("dqn", "CartPole-v1", 100_000, 475, misses=1),
    algorithm("sac", "Pendulum-v1", 20_000, -200),
    algorithm("ppo", "Acrobot-v1", 500_000, -100),
)
FORMATIONS = (
    *(formation(name, preset=name) for name in ("a3c", "appo", "impala", "seed-impala", "apex-dqn", "gorila-dqn")),
    formation("ppo allreduce", algo="ppo", formation="allreduce", learners=2, actors=2),
    formation("ppo sharded_ps", algo="ppo", formation="sharded_ps", servers=2, actors=2),
)
PRESETS = (
    preset("dqn-acrobot", -100),
    preset("ppo-lunarlander", 200),  # solved, as Gymnasium puts it
    preset("ppo-pendulum", -250),
    preset("sac-mountaincarcontinuous", 90),  # solved
)


def judge(yardstick: Yardstick, backend: str, seeds: int) -> bool:
    """Run the seeds and print a row."""
    runs = [train({**yardstick.settings, "backend": backend, "seed": seed}).summary for seed in range(seeds)]
    returns = [run["final_return"] for run in runs]
    short = sum(ret < yardstick.least for ret in returns)
    passed = short <= (yardstick.misses if seeds >= 5 else 0)
    seconds = sum(run["seconds"] for run in runs) / seeds
    cell = " ".join(f"{ret:7.1f}" for ret in returns)
    verdict = f"≥ {yardstick.least:6.1f}  {seconds:6.1f} s  {'ok' if passed else 'FELL SHORT'}"
    print(f"{yardstick.title:25} {backend:5}  {cell:40}  IQM {interquartile_mean(returns):7.1f}  {verdict}", flush=True)
    return passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--formations", action="store_true", help="formations instead of algorithms")
    parser.add_argument("--presets", action="store_true", help="the other presets instead of algorithms")
    parser.add_argument("--only", default="", help="yardsticks whose title has this in it")
    parser.add_argument("--backend", choices=["jax", "torch"], help="one backend")
    parser.add_argument("--seeds", type=int, default=5, help="on JAX; PyTorch gets at most two")
    arguments = parser.parse_args()
    chosen = FORMATIONS if arguments.formations else PRESETS if arguments.presets else ALGORITHMS
    backends = [arguments.backend] if arguments.backend else ["jax", "torch"] if chosen is ALGORITHMS else ["jax"]
    passed = True
    for yardstick in chosen:
        if arguments.only in yardstick.title:
            for backend in backends:
                passed &= judge(yardstick, backend, arguments.seeds if backend == "jax" else min(2, arguments.seeds))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
