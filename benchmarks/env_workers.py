"""Does sharing environments among processes pay? Steps a second of PPO with two workers against none, in turns.

python benchmarks/env_workers.py [--rounds 5] [--json]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from timing import Verdict, finish, interleaved, median
from trained import train

CASES = {"busy:Busy-v1": (24_000, 1.5, "200 µs a step"), "Acrobot-v1": (80_000, 0.0, "reported")}
COMMON = {"algo": "ppo", "preset": "none", "eval_episodes": 0, "checkpoint_every": 10**9, "log_every": 2_000}


def of(env: str, steps: int, workers: int) -> Callable[[], float]:
    """A call that trains: steps a second."""
    return lambda: train({**COMMON, "env": env, "steps": steps, "env_workers": workers}).speed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    verdicts = []
    for env, (steps, required, note) in CASES.items():
        found = interleaved({"two": of(env, steps, 2), "none": of(env, steps, 0)}, arguments.rounds)
        ratios = [two / none for two, none in zip(found["two"], found["none"])]
        note = f"{note}; rounds from {min(ratios):.2f}× to {max(ratios):.2f}×"
        two, none = median(found["two"]), median(found["none"])
        verdicts.append(Verdict(env, two, none, "steps/s", median(ratios), required, note=note))
    return finish("PPO with --env-workers 2 against none", verdicts, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
