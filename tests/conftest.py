"""What every test shares: a cache of compiled programs that outlives them, so that the same run is compiled once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

CACHE, LARGEST = Path(__file__).parent.parent / ".jax_cache", 2 * 10**9  # bytes


def _too_large() -> bool:
    return CACHE.is_dir() and sum(file.stat().st_size for file in CACHE.iterdir()) > LARGEST


if "PYTEST_XDIST_WORKER" not in os.environ and _too_large():  # before anyone reads from it
    shutil.rmtree(CACHE)
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
