"""What every contestant does: wait for a line with a number of steps, train that many more, answer with what it took.

It imports the standard library alone, because each contestant runs in an environment of its own.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

__all__ = ["serve"]


def serve(train: Callable[[int], int]) -> None:
    """Answer each line with ``{"steps": …, "seconds": …}``; ``train(n)`` takes at least n steps and says how many."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints must not mix with the answers
    for line in sys.stdin:
        started = time.perf_counter()
        steps = train(int(line))
        seconds = time.perf_counter() - started
        print(json.dumps({"steps": steps, "seconds": seconds}), file=answers, flush=True)
