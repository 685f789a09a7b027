"""How long does Pong take on this machine? The preset ``appo-pong`` until its last 100 games end with 17 or more.

    python benchmarks/pong.py [--seed 0] [--out DIR]

Prints throughput, the time to the goal and the greedy return; the run directory keeps the curve. The published
yardstick (4 actors, 1 buffer, 1 learner, 42×42×4 observations) took 1,940 seconds. Exits with 1 where it took longer.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from timing import Verdict, finish
from trained import train

GOAL, SECONDS = 17.0, 1940.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(time.strftime("runs/pong-%Y%m%d-%H%M%S")))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    print(f"training appo-pong, up to half an hour; watch it with: starling doctor {arguments.out}", flush=True)
    run = train({"preset": "appo-pong", "seed": arguments.seed}, arguments.out)
    reached = next((line for line in run.lines if line.get("episode_return", -21.0) >= GOAL), None)
    note = f"at {reached['env_steps']:,} steps" if reached else f"best {best(run.lines):.1f}"
    seconds = reached["seconds"] if reached else float("inf")
    greedy = run.summary["final_return"]
    return finish(
        "Pong",
        [
            Verdict("time to 17 over 100 games", seconds, SECONDS, "s", seconds / SECONDS, 1.0, False, note),
            Verdict("greedy return at the end", greedy, None, "", greedy, GOAL),
            Verdict("steps a second", run.speed, None, "", run.speed, 0.0),
        ],
        arguments.json,
    )


def best(lines: list[dict]) -> float:
    return max((line["episode_return"] for line in lines if "episode_return" in line), default=float("nan"))


if __name__ == "__main__":
    sys.exit(main())
