"""Rate limiters: when may a caller insert or sample?

A limiter is a value without state; the table counts, and asks. The answer is None, or the reason in words, so that
whoever waits can say for what.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from starling.core.errors import ConfigError, DataError

__all__ = [
    "Limiter",
    "MinSize",
    "Queue",
    "RateLimitTimeout",
    "SamplesPerInsert",
    "TableClosedError",
    "TableCounts",
]


class RateLimitTimeout(DataError):
    """The rate limiter held a caller back for longer than it would wait."""


class TableClosedError(DataError):
    """The table was closed, perhaps while the caller waited."""


class TableCounts:
    """What a table has counted since it was made: items put in, drawn and held, and the largest batch of each kind."""

    __slots__ = ("inserts", "largest_insert", "largest_sample", "samples", "size")

    def __init__(self) -> None:
        self.inserts = 0
        self.samples = 0
        self.size = 0
        self.largest_insert = 1
        self.largest_sample = 1


class Limiter(ABC):
    """The two questions a table asks before it acts, each answered by None or by a reason to wait."""

    @abstractmethod
    def holds_insert(self, n: int, counts: TableCounts, capacity: int) -> str | None: ...

    @abstractmethod
    def holds_sample(self, n: int, counts: TableCounts) -> str | None: ...


@dataclass(frozen=True)
class MinSize(Limiter):
    """Sampling waits until the table holds ``size`` items; inserting never waits."""

    size: int = 1

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConfigError(f"size={self.size}; a table can be sampled from one item on.")

    def holds_insert(self, n: int, counts: TableCounts, capacity: int) -> str | None:
        return None

    def holds_sample(self, n: int, counts: TableCounts) -> str | None:
        if counts.size >= self.size:
            return None
        return f"sample waits: size {counts.size} < {self.size}"


@dataclass(frozen=True)
class SamplesPerInsert(Limiter):
    """Keeps (items drawn) / (items inserted) near ``ratio``.

    Counting starts at ``min_size`` items. From there on, drawn items may lag or lead ``ratio`` × inserted items by
    ``margin`` items. A batch moves the balance at once, so a batch as large as the room between the two margins
    could never go through; the margin must leave room for it.
    """

    ratio: float
    margin: float
    min_size: int = 1

    def __post_init__(self) -> None:
        if not (math.isfinite(self.ratio) and self.ratio > 0):
            raise ConfigError(f"ratio={self.ratio}; samples per insert must be a positive number.")
        if self.min_size < 1:
            raise ConfigError(f"min_size={self.min_size}; a table can be sampled from one item on.")
        if 2 * self.margin < self.ratio + 1:
            raise ConfigError(
                f"margin={self.margin} with ratio={self.ratio}: one insert and one sample move the balance by "
                f"{self.ratio + 1}, more than the room of {2 * self.margin}; try margin={math.ceil(self.ratio + 1)}."
            )

    def _refuse_batches(self, inserted: int, sampled: int) -> None:
        """Raise where an insert and a sample of these sizes could each wait for the other for ever."""
        if inserted * self.ratio + sampled > 2 * self.margin:
            least = math.ceil((inserted * self.ratio + sampled) / 2)
            raise ConfigError(
                f"inserts of {inserted} and samples of {sampled} items at once could wait for each other for ever "
                f"with margin={self.margin:g}; raise margin to {least} or make the batches smaller."
            )

    def holds_insert(self, n: int, counts: TableCounts, capacity: int) -> str | None:
        self._refuse_batches(n, counts.largest_sample)
        ahead = (counts.inserts + n - self.min_size) * self.ratio - counts.samples
        if ahead <= self.margin or counts.inserts + n <= self.min_size:
            return None
        achieved = counts.samples / max(1, counts.inserts - self.min_size)
        return (
            f"insert waits: samples/insert {achieved:.4g} < {self.ratio:g}−margin "
            f"({ahead:g} samples behind, {self.margin:g} allowed)"
        )

    def holds_sample(self, n: int, counts: TableCounts) -> str | None:
        self._refuse_batches(counts.largest_insert, n)
        if counts.size < self.min_size:
            return f"sample waits: size {counts.size} < {self.min_size}"
        ahead = counts.samples + n - (counts.inserts - self.min_size) * self.ratio
        if ahead <= self.margin:
            return None
        achieved = counts.samples / max(1, counts.inserts - self.min_size)
        return (
            f"sample waits: samples/insert {achieved:.4g} > {self.ratio:g}+margin "
            f"({ahead:g} samples ahead, {self.margin:g} allowed)"
        )


@dataclass(frozen=True)
class Queue(Limiter):
    """Inserting waits while the table is full; sampling waits until enough items are there."""

    def holds_insert(self, n: int, counts: TableCounts, capacity: int) -> str | None:
        if counts.size + n <= capacity:
            return None
        return f"insert waits: {counts.size} of {capacity} places taken, {n} wanted"

    def holds_sample(self, n: int, counts: TableCounts) -> str | None:
        if counts.size >= n:
            return None
        return f"sample waits: {counts.size} items there, {n} wanted"
