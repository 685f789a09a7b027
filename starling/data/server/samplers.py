"""Samplers of tables that live in another process.

sampler = Sampler("run/tables.sock", "replay", signature, batch_size=256)
sample = sampler.sample()
sampler.update_priorities(sample.keys, abs(td_errors))
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from starling.core.errors import ConfigError, DataError
from starling.core.spaces import Dict
from starling.data.server.clients import Client
from starling.data.server.protocol import (
    CONSUMER_WAITS,
    HEAD,
    KEYS,
    PROBABILITIES,
    TAIL,
    UPDATE_HEAD,
    UPDATE_KEYS,
    UPDATE_PRIORITIES,
    UPDATE_TAIL,
    WEIGHTS,
    describe,
    sampler_fields,
)
from starling.data.tables.kernels import fence
from starling.data.tables.layout import Columns
from starling.data.tables.sample import Sample, check_beta, make_sample, weigh

__all__ = ["Sampler"]


class Sampler:
    """Draws batches from a server's table and sends priorities back.

    ``prefetch`` batches are drawn ahead. A sample lies in shared memory and is overwritten two calls later.
    """

    def __init__(
        self,
        address: str | Path,
        table: str,
        signature: Dict,
        batch_size: int,
        *,
        prefetch: int = 2,
        updates: int = 16_384,
        patience: float = 5.0,
    ) -> None:
        if batch_size < 1 or prefetch < 1 or updates < batch_size:
            raise ConfigError(
                f"batch_size={batch_size}, prefetch={prefetch}, updates={updates}; the first two are at least 1 and "
                "there is room for the updates of one batch."
            )
        self.signature, self.batch_size, self._depth, self._room = signature, batch_size, prefetch + 2, updates
        layout = describe(signature)
        self._columns = Columns(signature, 1)
        self._columns.allocate()
        sizes = {"batch": batch_size, "depth": self._depth, "updates": updates}
        request = {"role": "sampler", "tables": [table], "layout": layout, **sizes}
        fields = sampler_fields(layout, batch_size, self._depth, updates)
        self._client = Client(address, request, fields, patience)
        self._left: list[Sample] = []  # batches of a lost server that were not taken
        self._attach()

    def _attach(self) -> None:
        segment = self._client.segment
        self._counters = segment.counters
        names = [*self._columns.paths, KEYS, PROBABILITIES, WEIGHTS]
        self._samples = [
            make_sample(self._columns, self.batch_size, {name: segment.arrays[name][i] for name in names})
            for i in range(self._depth)
        ]
        self._taken = 0
        self._update_keys, self._update_priorities = segment.arrays[UPDATE_KEYS], segment.arrays[UPDATE_PRIORITIES]

    def sample(self, timeout: float | None = None, *, beta: float | None = None) -> Sample:
        """The next batch; ``beta`` is the exponent of its importance weights, where it is not the table's."""
        exponent = None if beta is None else check_beta(beta)
        sample = self._left.pop(0) if self._left else self._next(timeout)
        if exponent is not None:
            weigh(sample, exponent)
        return sample

    def _next(self, timeout: float | None) -> Sample:
        self._counters[TAIL] = max(0, self._taken - 1)  # the batch before the last may be overwritten
        fence()
        self._wake_server()
        if int(self._counters[HEAD]) <= self._taken:
            self._client.wait(self._has_batch, timeout, "a sampler", self._recover)
        fence()
        sample = self._samples[self._taken % self._depth]
        self._taken += 1
        return sample

    def _has_batch(self) -> bool:
        return int(self._counters[HEAD]) > self._taken

    def _wake_server(self) -> None:
        if self._counters[CONSUMER_WAITS]:
            self._counters[CONSUMER_WAITS] = 0
            self._client.wake()

    def update_priorities(self, keys: Any, priorities: Any, timeout: float | None = None) -> None:
        """Send new priorities; the server applies them in order and ignores keys that are gone."""
        keys, given = np.asarray(keys), np.asarray(priorities, np.float64)
        if keys.dtype != np.int64 or keys.ndim != 1 or given.shape != keys.shape:
            raise DataError(
                f"keys {keys.dtype}{list(keys.shape)} and priorities {list(given.shape)} arrived; int64[N]."
            )
        if not ((given >= 0) & np.isfinite(given)).all():
            raise DataError(f"priorities {given!r:.80} arrived; they are finite and at least 0.")
        done, n = 0, keys.size
        while done < n:
            head = int(self._counters[UPDATE_HEAD])
            free = self._room - (head - int(self._counters[UPDATE_TAIL]))
            if free <= 0:
                self._client.wait(self._has_update_room, timeout, "a priority update", self._recover)
                continue
            start = head % self._room
            step = min(n - done, free, self._room - start)
            self._update_keys[start : start + step] = keys[done : done + step]
            self._update_priorities[start : start + step] = given[done : done + step]
            fence()
            self._counters[UPDATE_HEAD] = head + step
            done += step
        fence()
        self._wake_server()

    def _has_update_room(self) -> bool:
        return int(self._counters[UPDATE_HEAD]) - int(self._counters[UPDATE_TAIL]) < self._room

    def _recover(self) -> None:
        """Reconnect, and send again the updates that were not applied.

        Batches that the lost server had drawn remain: their memory is this process's as well.
        """
        self._left += [self._samples[i % self._depth] for i in range(self._taken, int(self._counters[HEAD]))]
        head, tail = int(self._counters[UPDATE_HEAD]), int(self._counters[UPDATE_TAIL])
        where = np.arange(tail, head) % self._room
        keys, priorities = self._update_keys[where], self._update_priorities[where]
        self._client.reconnect()
        self._attach()
        self.update_priorities(keys, priorities)

    def close(self) -> None:
        self._client.close()
