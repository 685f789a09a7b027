"""What the contenders of the replay benchmark share: the items, a stopwatch, and the answers to their input.

It needs NumPy alone, because each contender runs in an environment of its own.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping

import numpy as np

__all__ = ["ALPHA", "BATCH", "ITEMS", "Trial", "cartpole", "cycles", "serve"]

ITEMS, BATCH, ALPHA = 131_072, 256, 0.6
Trial = Callable[[], dict[str, float]]


def cartpole(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Transitions that look like those of CartPole."""
    rng = np.random.default_rng(seed)
    return {
        "obs": rng.standard_normal((n, 4)).astype(np.float32),
        "action": rng.integers(0, 2, n),
        "reward": np.ones(n, np.float32),
        "discount": np.full(n, 0.99, np.float32),
        "next_obs": rng.standard_normal((n, 4)).astype(np.float32),
    }


def cycles(cycle: Callable[[int], None], count: int) -> dict[str, float]:
    """Microseconds of a call."""
    start = time.perf_counter()
    for i in range(count):
        cycle(i)
    return {"microseconds": (time.perf_counter() - start) / count * 1e6}


def serve(tasks: Mapping[str, Callable[[], Trial]]) -> None:
    """Set up the task that the command line names; then answer each line of the input with a trial, as JSON."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints must not mix with the answers
    trial = tasks[sys.argv[1]]()
    trial()
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for _ in sys.stdin:
        print(json.dumps(trial()), file=answers, flush=True)
