import numpy as np
import pytest

from tests.maths.helpers import RUNNERS, Runner


@pytest.fixture(params=RUNNERS)
def run(request):
    return Runner(request.param)


@pytest.fixture
def rng():
    return np.random.default_rng(7)
