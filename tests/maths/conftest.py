import jax
import numpy as np
import pytest

from tests.maths.helpers import RUNNERS, Runner


@pytest.fixture(scope="package", autouse=True)
def compile_quickly():
    """Each small program runs once here: the time goes into compiling it."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(params=RUNNERS)
def run(request):
    return Runner(request.param)


@pytest.fixture
def rng():
    return np.random.default_rng(7)
