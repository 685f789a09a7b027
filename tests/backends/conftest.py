import numpy as np
import pytest

from starling.backends import get_backend


@pytest.fixture(params=["numpy", "jax", "torch"])
def backend(request):
    return get_backend(request.param)


@pytest.fixture
def rng():
    return np.random.default_rng(11)
