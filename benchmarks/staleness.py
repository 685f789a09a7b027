"""What does V-trace do for old experience? IMPALA with and without it, over how far actors run ahead.

    python benchmarks/staleness.py [--seeds 8] [--first 0] [--steps 200000] [--picture FILE]

Runs are simulated: the learner is slow, and each actor may have so many chunks under way that what it learns from is
as old as asked. Prints a table, draws the picture, and exits with 1 unless V-trace keeps nine tenths of its return at
an age at which the uncorrected learner loses half of its own.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.table import Table
from timing import median
from trained import train

QUEUES = (1, 2, 4, 8)  # chunks of an actor that may wait
NAMES = {True: "V-trace", False: "uncorrected"}


def run(queue: int, vtrace: bool, seed: int, steps: int) -> tuple[float, float]:
    """Mean lag, and the greedy return at the end."""
    done = train({
        "preset": "impala", "steps": steps, "seed": seed, "log_every": 5_000, "checkpoint_every": steps,
        "actors": 4, "queue": queue, "executor": "simulated", "backend": "jax",
        "simulation": {"seed": seed, "work": {"actor": 0.1, "learner": 1.0}},
        "impala": {"entropy_weight": 0.01, "vtrace": vtrace},
    })  # fmt: skip
    lags = [line["lag_mean"] for line in done.lines if "lag_mean" in line]
    return sum(lags) / len(lags), done.summary["final_return"]


def draw(found: dict[tuple[int, bool], list[tuple[float, float]]], file: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for vtrace, colour in ((True, "#2563eb"), (False, "#dc2626")):
        rows = [found[queue, vtrace] for queue in QUEUES]
        lags = [median([lag for lag, _ in row]) for row in rows]
        returns = [[ret for _, ret in row] for row in rows]
        axes.plot(lags, [median(r) for r in returns], "-", color=colour, label=NAMES[vtrace], linewidth=2)
        for lag, each in zip(lags, returns):
            axes.plot([lag] * len(each), each, "o", color=colour, alpha=0.4, markersize=4, markeredgewidth=0)
    axes.set_xscale("log", base=2)
    axes.set_xticks(lags, labels=[f"{lag:.0f}" for lag in lags])
    axes.set_xlabel("updates between acting and learning (mean lag)")
    axes.set_ylabel("greedy return on CartPole-v1")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    figure.savefig(file)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first", type=int, default=0, help="the first of the seeds")
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--picture", type=Path, default=Path("staleness.png"))
    arguments = parser.parse_args()
    cells = list(product(QUEUES, NAMES, range(arguments.first, arguments.first + arguments.seeds)))
    with ThreadPoolExecutor(2) as pool:
        results = pool.map(lambda cell: run(*cell, steps=arguments.steps), cells)
        found: dict[tuple[int, bool], list[tuple[float, float]]] = {}
        for (queue, vtrace, seed), (lag, ret) in zip(cells, results):
            found.setdefault((queue, vtrace), []).append((lag, ret))
            print(f"queue {queue:3}  {NAMES[vtrace]:12} seed {seed}: lag {lag:5.1f}, return {ret:6.1f}", flush=True)
    table = Table(title=f"IMPALA on CartPole-v1, {arguments.steps:,} steps, median of {arguments.seeds} seeds")
    for column in ("mean lag", *NAMES.values()):
        table.add_column(column, justify="right")
    medians = {cell: median([ret for _, ret in row]) for cell, row in found.items()}
    for queue in QUEUES:
        lag = median([lag for lag, _ in found[queue, True]])
        table.add_row(f"{lag:.1f}", *(f"{medians[queue, vtrace]:.0f}" for vtrace in NAMES))
    Console(width=100).print(table)
    draw(found, arguments.picture)
    print(f"picture: {arguments.picture}")
    kept = {cell: medians[cell] / medians[QUEUES[0], cell[1]] for cell in medians}
    return 0 if any(kept[queue, True] >= 0.9 and kept[queue, False] <= 0.5 for queue in QUEUES) else 1


if __name__ == "__main__":
    sys.exit(main())
