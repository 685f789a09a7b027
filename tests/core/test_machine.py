"""What the machine has, and how its memory is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from starling.core.machine import keep_freed_memory, processors


def test_there_is_at_least_one_processor():
    assert processors() >= 1


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
    faults = {
        how: int(subprocess.run([sys.executable, "-c", code, how], capture_output=True, text=True, check=True).stdout)
        for how in ("keep", "give back")
    }
    assert faults["keep"] < faults["give back"] / 20
