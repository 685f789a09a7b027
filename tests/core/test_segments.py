"""Shared memory laid out from a signature."""

from __future__ import annotations

import numpy as np
import pytest

from starling.core.errors import ConfigError
from starling.core.segments import Segment, segment_size

FIELDS = [("a", (3, 5), "float32"), ("b", (), "int64")]


def test_the_size_is_known_before_anything_is_reserved():
    """Two lines of counters, 512 bytes of text, 60 and 8 bytes rounded up to lines of 64."""
    assert segment_size(FIELDS, counters=2) == 2 * 64 + 512 + 64 + 64
    segment = Segment(FIELDS, counters=2)
    assert segment.size == segment_size(FIELDS, counters=2)
    segment.close()


def test_counters_may_be_as_many_as_are_asked_for_and_are_seen_by_the_other_side():
    one = Segment(FIELDS, counters=100)
    other = Segment(FIELDS, one.descriptor, counters=100)
    one.counters[:] = np.arange(100)
    one.arrays["a"][:] = 7
    assert other.counters.tolist() == list(range(100))
    assert (other.arrays["a"] == 7).all()
    one.close()


def test_a_segment_that_is_too_small_is_refused():
    one = Segment(FIELDS, counters=1)
    with pytest.raises(ConfigError, match=r"the segment has 704 bytes, the layout needs 768; do both sides"):
        Segment(FIELDS, one.descriptor, counters=2)
    one.close()
