"""Whole runs of this checkout against those of another commit: environment steps a second, in alternating rounds.

    python benchmarks/revisions.py REV [--case ppo] [--rounds 5] [--json]

REV is checked out beside, in a directory of its own, and runs on this environment. Speed is that after the first
fifth of a run, in which things are compiled.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from timing import Verdict, finish, interleaved, median
from trained import train

HERE = Path(__file__).parent
REQUIRED = 0.97
CASES: dict[str, dict[str, Any]] = {
    "ppo": {"algo": "ppo", "env": "Pendulum-v1", "steps": 400_000, "log_every": 10_000},
    "dqn": {"algo": "dqn", "env": "Acrobot-v1", "steps": 30_000},
    "sac": {"algo": "sac", "env": "Pendulum-v1", "steps": 4_000, "log_every": 200},
    "impala": {
        "algo": "impala", "env": "Acrobot-v1", "steps": 400_000, "log_every": 5_000, "formation": "actor_learner",
        "actors": 2, "executor": "processes", "impala": {"envs": 16, "rollout": 16},
    },
}  # fmt: skip
COMMON = {"preset": "none", "eval_episodes": 0, "checkpoint_every": 10**9}


def of(checkout: Path, case: str) -> Callable[[], float]:
    """A call that runs the case with the code of a checkout: steps a second."""
    return lambda: train({**CASES[case], **COMMON}, checkout=checkout).speed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", help="the commit to compare with")
    parser.add_argument("--case", choices=CASES, action="append", help="one or more; all by default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    verdicts = []
    with tempfile.TemporaryDirectory() as directory:
        other = Path(directory) / "other"
        subprocess.run(
            ["git", "worktree", "add", "--quiet", "--detach", other, arguments.revision], cwd=HERE, check=True
        )
        try:
            for case in arguments.case or CASES:
                found = interleaved({"ours": of(HERE.parent, case), "other": of(other, case)}, arguments.rounds)
                ours, theirs = median(found["ours"]), median(found["other"])
                # Neighbouring runs see the same machine, so their ratio is steadier than that of the medians.
                ratios = [mine / its for mine, its in zip(found["ours"], found["other"])]
                note = f"rounds from {min(ratios):.2f}× to {max(ratios):.2f}×"
                verdicts.append(Verdict(case, ours, theirs, "steps/s", median(ratios), REQUIRED, note=note))
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", other], cwd=HERE, check=True)
    return finish(f"this checkout against {arguments.revision}", verdicts, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
