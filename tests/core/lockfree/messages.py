"""Messages that hold their number in every place."""

from __future__ import annotations

import numpy as np

__all__ = ["item", "number_of"]


def item(number):
    return {"a": np.full((2, 3), number, np.float32), "b": np.int64(number)}


def number_of(taken):
    assert (taken["a"] == taken["b"]).all()
    return int(taken["b"])
