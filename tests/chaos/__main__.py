"""Everything that can go wrong, at random, for a while: ``make chaos``; ``make chaos-long`` for hours.

    python -m tests.chaos --minutes 25
    python -m tests.chaos --only "killed at random" --rounds 7 --seed 3

Trials (see ``trials.py``) take turns, round after round, until the time is over or the rounds are done. A row of the
table is a trial: how often it was made, how often it failed, and its figures. What failed is made again by its seed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from tests.chaos.trials import TRIALS, Figures, soaked


def attempt(name: str, seed: int, folder: Path) -> tuple[Figures | None, str]:
    """A trial's figures, or why it failed."""
    own = folder / f"{name.replace(' ', '-').replace(':', '')}-{seed}"
    own.mkdir()
    try:
        return TRIALS[name](np.random.default_rng([seed, *name.encode()]), own), ""
    except Exception as error:
        return None, f"{type(error).__name__}: {error!s:.2000}"


def table(found: dict[str, list[Figures]], failed: dict[str, list[str]]) -> str:
    lines = ["| trial | times | failed | figures (median) |", "| --- | ---: | ---: | --- |"]
    for name in TRIALS:
        done, wrong = found[name], failed[name]
        if done or wrong:
            keys = dict.fromkeys(key for figures in done for key in figures)
            medians = {key: statistics.median(each[key] for each in done if key in each) for key in keys}
            said = ", ".join(f"{key} {value:.3g}" for key, value in medians.items())
            lines.append(f"| {name} | {len(done) + len(wrong)} | {len(wrong)} | {said} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=25.0, help="no round begins after so long")
    parser.add_argument("--rounds", type=int, default=1_000_000, help="how often each trial is made at most")
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    parser.add_argument("--only", default="", help="trials whose name has this in it")
    parser.add_argument("--soak", type=float, default=0.0, help="minutes that the trials for long take; 0: one")
    arguments = parser.parse_args()
    if arguments.soak:
        for name, algo, formation in (("apex", "dqn", "apex"), ("impala", "impala", "actor_learner")):
            TRIALS[f"for long: {name}"] = soaked(algo, formation, 60 * arguments.soak, 10.0)
    names = [name for name in TRIALS if arguments.only in name]
    found, failed = defaultdict[str, list[Figures]](list), defaultdict[str, list[str]](list)
    until = time.monotonic() + 60 * arguments.minutes

    def make(name: str, seed: int, folder: Path) -> None:
        if time.monotonic() > until:
            return
        figures, why = attempt(name, seed, folder)
        if figures is None:
            failed[name].append(why)
            print(f"FAILED {name}, seed {seed}: {why}", flush=True)
        else:
            found[name].append(figures)
            print(f"ok {name}, seed {seed}", flush=True)

    with tempfile.TemporaryDirectory(prefix="chaos-") as directory, ThreadPoolExecutor(2) as pool:
        seed = arguments.seed
        while time.monotonic() < until and seed < arguments.seed + arguments.rounds:
            list(pool.map(make, names, [seed] * len(names), [Path(directory)] * len(names)))
            seed += 1
    print(table(found, failed))
    return 1 if any(failed.values()) or not any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
