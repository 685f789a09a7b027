"""Damaged inputs to the data plane, in a process of its own: when it crashes, its directory has the seed of the input.

    python -m tests.chaos.data_inputs /tmp/directory "saved tables=0:1000" "messages=7:8"

It prints, for each kind, how often which of the project's errors came, how long it took and the longest input of it,
and how much memory was taken.
"""

from __future__ import annotations

import collections
import faulthandler
import json
import os
import resource
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from starling.core.errors import StarlingError

from .data_files import DurableLogs, SavedTables
from .data_messages import Connections, Messages

INPUTS = {
    "saved tables": SavedTables,
    "durable logs": DurableLogs,
    "messages": Messages,
    "connections": Connections,
}
LONGEST = 1.0  # seconds of an input on a processor
STUCK = 30.0  # seconds after which an input is given up, whoever else has the processors
MOST_MEMORY = 200_000_000  # bytes more than at the start
SEED = "seed"  # the file that has the kind and the seed of the input that is tried


def memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def attempt_all(kind: str, first: int, behind: int, directory: Path, seed_file: int) -> dict[str, Any]:
    """Try the inputs of these seeds; returns what came of it."""
    inputs, began = INPUTS[kind](directory / "inside"), time.monotonic()
    found, longest, before = collections.Counter(), 0.0, 0
    beside = sorted(os.listdir(directory))
    for seed in range(first, behind):
        os.pwrite(seed_file, f"{kind}={seed}:{seed + 1}".ljust(40).encode(), 0)
        faulthandler.dump_traceback_later(STUCK, exit=True)
        start = time.process_time()
        try:
            inputs.attempt(seed)
            found["none"] += 1
        except StarlingError as error:
            found[type(error).__name__] += 1
        seconds = time.process_time() - start
        longest = max(longest, seconds)
        before = before or memory()  # what the first input loads stays
        assert seconds < LONGEST, f"{seconds:.1f} s"
        assert memory() - before < MOST_MEMORY, f"{(memory() - before) / 1e6:.0f} MB"
        assert sorted(os.listdir(directory)) == beside, "files beside the directory"
    faulthandler.cancel_dump_traceback_later()
    return {
        "inputs": behind - first,
        "errors": found,
        "seconds": round(time.monotonic() - began, 1),
        "longest": round(longest, 3),
        "megabytes": round((memory() - before) / 1e6),
    }


def main(directory: Path, *ranges: str) -> None:
    os.fsync = lambda descriptor: None  # nobody pulls the plug here
    (directory / "inside").mkdir()
    os.chdir(directory)
    seed_file = os.open(directory / SEED, os.O_WRONLY | os.O_CREAT)
    for each in ranges:
        kind, _, seeds = each.partition("=")
        first, behind = map(int, seeds.split(":"))
        print(kind, json.dumps(attempt_all(kind, first, behind, directory, seed_file)))


if __name__ == "__main__":
    faulthandler.enable()
    try:
        main(Path(sys.argv[1]), *sys.argv[2:])
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)  # threads of a server do not hold it up
