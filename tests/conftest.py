"""What every test shares: one cache of compiled programs, so that the same run is compiled once, whatever process."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

_cache = tempfile.mkdtemp(prefix="starling-tests-")
atexit.register(shutil.rmtree, _cache, ignore_errors=True)
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", _cache)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
