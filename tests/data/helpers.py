"""Small signatures and items that the tests of the data plane share."""

import numpy as np

from starling.core.spaces import Dict, Float, Int

POINT = Dict(x=Float((2,)), n=Int((), 0, 2**40, "int64"))


def points(*numbers):
    """Items that carry their number: n, and x = (n, −n)."""
    n = np.asarray(numbers, np.int64)
    return {"n": n, "x": np.stack([n, -n], axis=-1).astype(np.float32).reshape(-1, 2)}
