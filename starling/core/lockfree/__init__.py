"""Data structures in shared memory without a lock.

Everything in them has one writer, and one store makes a change visible: so either side may be killed at any
instruction, and what it had finished is there, and nothing else. Whoever waits is woken by a bell.
"""

from __future__ import annotations

from starling.core.lockfree.bells import listen, make_bell, ring
from starling.core.lockfree.cells import SharedCell, SharedGroup
from starling.core.lockfree.pool import Pool, SharedLane

__all__ = ["Pool", "SharedCell", "SharedGroup", "SharedLane", "listen", "make_bell", "ring"]
