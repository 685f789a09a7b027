"""What the machine has, and how a process uses it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from starling.core.machine import keep_freed_memory, processors


def run(code, *arguments):
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_there_is_at_least_one_processor():
    assert processors() >= 1


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are ranked by themselves on Linux alone")
def test_a_process_gives_way_with_every_thread():
    code = """
import os, threading
from starling.core.machine import give_way

pause = threading.Event()
threading.Thread(target=pause.wait).start()
give_way(3)
give_way(2)
print([os.getpriority(os.PRIO_PROCESS, int(thread)) for thread in os.listdir("/proc/self/task")])
pause.set()
"""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    assert run(code) == str([before + 5] * 2)


@pytest.mark.skipif(not keep_freed_memory(), reason="the C library keeps memory in its own way")
def test_freed_memory_is_used_again_instead_of_mapped_anew():
    code = """
import resource, sys
import numpy as np
from starling.core.machine import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()


def work():
    first = np.ones(15 << 20, np.uint8)
    second = first + 1
    return second * 2 - first


work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    faults = {how: int(run(code, how)) for how in ("keep", "give back")}
    assert faults["keep"] < faults["give back"] / 20
