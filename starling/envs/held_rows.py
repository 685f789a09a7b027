"""Which rows of asynchronous environments the caller holds, and which are under way."""

from __future__ import annotations

from typing import Any

import numpy as np

from starling.core.errors import ConfigError

__all__ = ["HeldRows"]


class HeldRows:
    """Refuses what would wait for ever, or act twice in a row that has not answered."""

    def __init__(self, name: str, count: int, batch: int) -> None:
        self._name, self._batch = name, batch
        self._held = np.ones(count, np.bool_)

    @property
    def under_way(self) -> int:
        return len(self._held) - int(self._held.sum())

    def require_enough(self) -> None:
        """Refuse to wait for rows that nobody has sent."""
        if self.under_way < self._batch:
            raise ConfigError(
                f"{self._name}: recv() waits for batch={self._batch} rows, and {self.under_way} of {len(self._held)} "
                "are under way; call reset() first, and send() actions for rows that were received."
            )

    def take(self, rows: np.ndarray) -> None:
        """These rows were handed out."""
        self._held[rows] = True

    def release(self, rows: Any) -> np.ndarray:
        """The numbers of ``rows``, which go under way."""
        numbers = np.asarray(rows)
        if numbers.shape != (self._batch,) or numbers.dtype.kind not in "iu":
            raise ConfigError(
                f"{self._name}: rows of shape {list(numbers.shape)} and type {numbers.dtype} arrived; send() takes the "
                f"batch={self._batch} row numbers that recv() gave."
            )
        inside = (numbers >= 0) & (numbers < len(self._held))
        if not inside.all() or not self._held[numbers].all() or len(np.unique(numbers)) != self._batch:
            raise ConfigError(
                f"{self._name}: rows {numbers.tolist()} arrived; send() takes rows that recv() gave and that were not "
                "sent since, each once."
            )
        self._held[numbers] = False
        return numbers.astype(np.int64)

    def release_all(self) -> None:
        self._held[:] = False
