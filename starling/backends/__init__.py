"""Backends: the only place that imports a deep-learning framework.

Shared source asks an array for its namespace, ``xp = ops(x)``, and calls ``xp`` alone: the array API standard
plus the few extras listed in ``backends.extras``. A backend is a value, never a process-wide switch.
"""

from starling.backends.base import Backend, available, get_backend
from starling.backends.captures import capture, capturing
from starling.backends.devices import check_elsewhere, parse_devices
from starling.backends.dispatch import ops

__all__ = [
    "Backend",
    "available",
    "capture",
    "capturing",
    "check_elsewhere",
    "get_backend",
    "ops",
    "parse_devices",
]
