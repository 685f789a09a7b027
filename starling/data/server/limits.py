"""What the clients of a table server may take, each and all together."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from starling.core.errors import ConfigError, DataError
from starling.core.memory import available_memory, human_bytes

__all__ = ["BusyError", "Quota", "ServerLimits"]


class BusyError(DataError):
    """There is no room for a client now; it may try again."""


@dataclass(frozen=True, kw_only=True)
class ServerLimits:
    """What clients may take of a table server."""

    connections: int = 256  # of writers and samplers
    orphans: int = 64  # writers that are gone and left items which a limiter holds back; the oldest make room
    newcomers: int = 64  # connections that have not said what they want; the oldest make room
    patience: float = 2.0  # seconds until a newcomer has said it, however slowly
    checkpoints: int = 4  # for which clients wait at once
    segment_bytes: int = 512_000_000  # of shared memory, for one connection
    all_bytes: int | None = None  # for all of them; None: half of the memory that is there when the server starts

    def __post_init__(self) -> None:
        numbers = {name: value for name, value in vars(self).items() if value is not None}
        if min(numbers.values()) <= 0:
            raise ConfigError(f"limits {numbers}; all of them are positive, or no client could be served.")


class Quota:
    """The connections there are, and their shared memory. For several threads."""

    def __init__(self, limits: ServerLimits) -> None:
        self._limits, self._lock = limits, threading.Lock()
        available = available_memory()
        self._most = limits.all_bytes or (None if available is None else available // 2)
        self.connections = self.nbytes = 0

    def take(self, nbytes: int) -> None:
        """Count another connection; BusyError where there are too many, DataError where it asks for too much."""
        most = self._limits.segment_bytes
        if nbytes > most:
            raise DataError(
                f"{human_bytes(nbytes)} of shared memory were asked for; a client gets {human_bytes(most)} at most. "
                "Use fewer slots or smaller batches, or raise segment_bytes of the server's limits."
            )
        with self._lock:
            if self.connections >= self._limits.connections:
                raise BusyError(f"the server has {self.connections} connections, as many as its limits allow")
            if self._most is not None and self.nbytes + nbytes > self._most:
                raise BusyError(
                    f"{human_bytes(nbytes)} of shared memory were asked for, and clients have "
                    f"{human_bytes(self.nbytes)} of {human_bytes(self._most)}"
                )
            self.connections += 1
            self.nbytes += nbytes

    def give_back(self, nbytes: int) -> None:
        with self._lock:
            self.connections -= 1
            self.nbytes -= nbytes
