import math

import numpy as np
import optax
import pytest

from starling.backends import get_backend
from starling.components.schedules import Constant, Cosine, Exponential, Linear, Piecewise, as_schedule
from starling.core.errors import ConfigError, UnknownNameError
from tests.components.building import BACKENDS

COUNTS = [0, 1, 17, 50, 99, 100, 101, 250]
SCHEDULES = [
    (Linear(1.0, 0.1, 100), optax.linear_schedule(1.0, 0.1, 100)),
    (Linear(0.0, 3.0, 100), optax.linear_schedule(0.0, 3.0, 100)),
    (Exponential(1.0, 0.5, 20), optax.exponential_decay(1.0, 20, 0.5)),
    (Exponential(1.0, 0.5, 20, 0.1), optax.exponential_decay(1.0, 20, 0.5, end_value=0.1)),
    (Cosine(2.0, 0.0, 100), optax.cosine_decay_schedule(2.0, 100)),
    (Cosine(2.0, 0.5, 100), optax.cosine_decay_schedule(2.0, 100, alpha=0.25)),
    (Piecewise((17.0, 100.0), (1.0, 0.5, 0.25)), lambda c: 1.0 if c < 17 else 0.5 if c < 100 else 0.25),
]


@pytest.mark.parametrize(("schedule", "reference"), SCHEDULES)
def test_schedules_are_those_of_optax(schedule, reference):
    for count in COUNTS:
        found = schedule(count)
        assert type(found) is float
        assert found == pytest.approx(float(reference(count)), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [np.int32, np.float32])
@pytest.mark.parametrize(("schedule", "reference"), SCHEDULES)
def test_arrays_in_compiled_code_give_the_same_in_float32(backend, dtype, schedule, reference):
    backend = get_backend(backend)
    found = np.asarray(backend.to_numpy(backend.compile(schedule)(np.array(COUNTS, dtype))))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [schedule(count) for count in COUNTS], rtol=1e-5, atol=1e-6)


def test_a_constant_stays():
    assert Constant(0.5)(10) == 0.5


def test_numbers_and_words_become_schedules():
    assert as_schedule(3)(100) == 3.0
    kept = Linear(1.0, 0.0, 10)
    assert as_schedule(kept) is kept
    assert as_schedule("constant:0.25")(7) == 0.25
    assert as_schedule("linear:1e-3:0:100")(50) == pytest.approx(5e-4)
    assert as_schedule("cosine:1:0:100")(50) == pytest.approx(0.5)
    assert as_schedule("exponential:1:0.5:10:0.3")(100) == pytest.approx(0.3)


def test_words_that_say_no_schedule_are_refused():
    with pytest.raises(UnknownNameError, match="Did you mean 'linear'"):
        as_schedule("liner:1:0:10")
    with pytest.raises(ConfigError, match="must read linear:start:end:steps"):
        as_schedule("linear:1:0")
    with pytest.raises(ConfigError, match="must read cosine:start:end:steps"):
        as_schedule("cosine:1:zero:10")


def test_settings_out_of_range_are_refused_when_the_schedule_is_made():
    with pytest.raises(ConfigError, match="boundaries must rise"):
        Piecewise((5.0, 1.0), (1.0, 2.0, 3.0))
    with pytest.raises(ConfigError, match="one value more"):
        Piecewise((5.0,), (1.0,))
    with pytest.raises(ConfigError, match="all three above 0"):
        Exponential(1.0, 0.0, 10)


def test_a_schedule_without_steps_is_at_its_end():
    assert Linear(1.0, 0.2, 0)(1) == pytest.approx(0.2)
    assert math.isfinite(Linear(1.0, 0.2, 0)(0))
