import threading

import numpy as np
import pytest

from starling.core.errors import ConfigError
from starling.data import MinSize, Queue, RateLimitTimeout, SamplesPerInsert, Table
from starling.data.tables.limiters import TableCounts

from .helpers import POINT, points


def counts(inserts, samples, size=None):
    c = TableCounts()
    c.inserts, c.samples, c.size = inserts, samples, inserts if size is None else size
    return c


def test_min_size_holds_sampling_alone():
    limiter = MinSize(3)
    assert limiter.holds_sample(1, counts(2, 0)) == "sample waits: size 2 < 3"
    assert limiter.holds_sample(1, counts(3, 0)) is None
    assert limiter.holds_insert(99, counts(0, 0), 1) is None


def test_samples_per_insert_holds_whoever_is_ahead():
    # Four samples an insert, five samples of slack, counted from ten items on.
    limiter = SamplesPerInsert(4.0, margin=5, min_size=10)
    assert limiter.holds_insert(1, counts(9, 0), 100) is None
    assert limiter.holds_insert(1, counts(10, 0), 100) is None  # then 4 behind
    assert "insert waits: samples/insert 0 < 4" in limiter.holds_insert(1, counts(11, 0), 100)  # 8 behind
    assert limiter.holds_sample(5, counts(10, 0)) is None
    assert "sample waits" in limiter.holds_sample(6, counts(10, 0))
    assert limiter.holds_sample(6, counts(11, 3)) is None  # 9 drawn, 4 due: 5 ahead
    assert "samples/insert 3.8 < 4" in limiter.holds_insert(1, counts(20, 38), 100)


def test_batches_that_could_wait_for_each_other_for_ever_are_refused():
    limiter = SamplesPerInsert(4.0, margin=5)
    with pytest.raises(ConfigError, match="raise margin to 18"):
        limiter.holds_sample(32, counts(100, 400))
    with pytest.raises(ConfigError, match="margin=2"):
        SamplesPerInsert(4.0, margin=2)
    with pytest.raises(ConfigError, match="ratio=0"):
        SamplesPerInsert(0, margin=2)
    with pytest.raises(ConfigError, match="size=0"):
        MinSize(0)


def test_a_queue_holds_both_ends():
    table = Table(POINT, 2, sampler="fifo", max_times_sampled=1, limiter=Queue())
    with pytest.raises(RateLimitTimeout):
        table.sample(1, timeout=0.01)
    table.insert(points(0, 1))
    with pytest.raises(RateLimitTimeout, match="2 of 2 places taken, 1 wanted"):
        table.insert(points(2), timeout=0.01)
    assert table.sample(1).data["n"].tolist() == [0]
    table.insert(points(2))
    assert table.sample(2).data["n"].tolist() == [1, 2]


def test_the_ratio_stays_within_its_margin_with_four_threads():
    ratio, margin, operations = 2.0, 20, 6_000
    table = Table(POINT, 1_000, limiter=SamplesPerInsert(ratio, margin, min_size=5))
    worst = []

    def insert():
        for i in range(operations):
            table.insert(points(i))
            worst.append((table.inserts - 5) * ratio - table.samples)

    def sample():
        for _ in range(operations):
            table.sample(2)

    threads = [threading.Thread(target=target) for target in (insert, insert, sample, sample)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert table.inserts == 2 * operations
    assert table.samples == 4 * operations
    # Each thread's reading of two counters may straddle one operation of every other thread.
    assert np.abs(worst[100:]).max() <= margin + 4 * ratio


@pytest.mark.slow
def test_the_ratio_stays_within_its_margin_over_a_million_operations():
    ratio, margin, operations = 1.0, 8, 250_000
    table = Table(POINT, 1_000, limiter=SamplesPerInsert(ratio, margin))
    inside = table._insert_run

    def checked(*args):
        ahead = (table.inserts + 1 - 1) * ratio - table.samples
        assert -margin <= ahead - ratio
        assert ahead <= margin or table.inserts == 0
        return inside(*args)

    table._insert_run = checked
    item = points(1)
    threads = [threading.Thread(target=lambda: [table.insert(item) for _ in range(operations)]) for _ in range(2)]
    threads += [threading.Thread(target=lambda: [table.sample(1) for _ in range(operations)]) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (table.inserts, table.samples) == (2 * operations, 2 * operations)
