"""Averages over trees."""

from __future__ import annotations

import numpy as np

from starling.maths.averaging import weighted_mean


def test_a_weighted_mean_by_hand():
    """(1·2 + 3·6) / 4 = 5; whole numbers become fractions, single precision stays."""
    mean = weighted_mean([({"a": np.float32(2), "b": 1}, 1.0), ({"a": np.float32(6), "b": 2}, 3.0)])
    assert mean["a"] == 5.0
    assert mean["a"].dtype == np.float32
    assert mean["b"] == 1.75
