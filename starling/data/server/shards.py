"""One table spread over several servers: writers deal out, samplers take turns, priorities find their way back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from starling.core.errors import ConfigError
from starling.data.server.samplers import Sampler
from starling.data.server.writers import Writer
from starling.data.tables.sample import Sample

__all__ = ["ShardedSampler", "ShardedWriter"]


class ShardedWriter:
    """Sends each batch of items to the next shard in turn."""

    def __init__(self, writers: Sequence[Writer]) -> None:
        if not writers:
            raise ConfigError("no writers were given; a sharded writer needs one for each shard.")
        self.writers = list(writers)
        self.signature, self.shared = writers[0].signature, writers[0].shared
        self._turn = 0

    def insert(self, items: Any, priorities: Any = None, *, timeout: float | None = None) -> int:
        return self._next().insert(items, priorities, timeout=timeout)

    def insert_leaves(
        self, leaves: list[np.ndarray], n: int, priorities: Any = None, timeout: float | None = None
    ) -> int:
        return self._next().insert_leaves(leaves, n, priorities, timeout)

    def _next(self) -> Writer:
        self._turn += 1
        return self.writers[self._turn % len(self.writers)]

    def flush(self, timeout: float | None = None) -> None:
        for writer in self.writers:
            writer.flush(timeout)

    def close(self) -> None:
        for writer in self.writers:
            writer.close()


class ShardedSampler:
    """Draws each batch from the next shard in turn.

    A key is (the shard's key) × (number of shards) + shard, so that a priority goes back to the shard that owns the
    item. Chances and weights are those within the shard.
    """

    def __init__(self, samplers: Sequence[Sampler]) -> None:
        if not samplers:
            raise ConfigError("no samplers were given; a sharded sampler needs one for each shard.")
        self.samplers = list(samplers)
        self._turn = 0

    def sample(self, timeout: float | None = None, *, beta: float | None = None) -> Sample:
        self._turn += 1
        shard = self._turn % len(self.samplers)
        sample = self.samplers[shard].sample(timeout, beta=beta)
        sample.keys *= len(self.samplers)
        sample.keys += shard
        return sample

    def update_priorities(self, keys: Any, priorities: Any, timeout: float | None = None) -> None:
        keys, priorities, n = np.asarray(keys), np.asarray(priorities, np.float64), len(self.samplers)
        for shard in range(n):
            mine = keys % n == shard
            if mine.any():
                self.samplers[shard].update_priorities(keys[mine] // n, priorities[mine], timeout)

    def close(self) -> None:
        for sampler in self.samplers:
            sampler.close()
