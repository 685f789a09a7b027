import math

import numpy as np
import optax
import pytest

from starling.backends import get_backend
from starling.components.schedules import Constant, Cosine, Exponential, LinearSchedule, Piecewise, as_schedule
from starling.core.errors import ConfigError, UnknownNameError
from tests.components.building import BACKENDS

# The whole run is a hundred steps of optax. Past its end, as in a run that was made longer, the last value stays.
PROGRESS = [0, 0.01, 0.17, 0.5, 0.99, 1, 1.01, 2.5]
SCHEDULES = [
    (LinearSchedule(1.0, 0.1), optax.linear_schedule(1.0, 0.1, 100)),
    (LinearSchedule(0.0, 3.0, over=0.5), optax.linear_schedule(0.0, 3.0, 50)),
    (Exponential(1.0, 0.5), optax.exponential_decay(1.0, 100, 0.5)),
    (Exponential(1.0, 0.5, over=0.2), optax.exponential_decay(1.0, 20, 0.5)),
    (Exponential(1.0, 0.5, 0.2, 0.1), optax.exponential_decay(1.0, 20, 0.5, end_value=0.1)),
    (Cosine(2.0, 0.0), optax.cosine_decay_schedule(2.0, 100)),
    (Cosine(2.0, 0.5, over=0.25), optax.cosine_decay_schedule(2.0, 25, alpha=0.25)),
    (Piecewise((0.17, 1.0), (1.0, 0.5, 0.25)), lambda c: 1.0 if c < 17 else 0.5 if c < 100 else 0.25),
]


@pytest.mark.parametrize(("schedule", "reference"), SCHEDULES)
def test_schedules_are_those_of_optax_over_the_share_of_the_run(schedule, reference):
    for progress in PROGRESS:
        found = schedule(progress)
        assert type(found) is float
        assert found == pytest.approx(float(reference(100 * progress)), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("schedule", "reference"), SCHEDULES)
def test_arrays_in_compiled_code_give_the_same_in_float32(backend, schedule, reference):
    backend = get_backend(backend)
    found = np.asarray(backend.to_numpy(backend.compile(schedule)(np.array(PROGRESS, np.float32))))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [schedule(progress) for progress in PROGRESS], rtol=1e-5, atol=1e-6)


def test_a_constant_stays():
    assert Constant(0.5)(0.0) == Constant(0.5)(1.0) == 0.5


def test_numbers_and_words_become_schedules():
    assert as_schedule(3)(1.0) == 3.0
    kept = LinearSchedule(1.0, 0.0)
    assert as_schedule(kept) is kept
    assert as_schedule("constant:0.25")(0.7) == 0.25
    assert as_schedule("linear:1e-3:0")(0.5) == pytest.approx(5e-4)
    assert as_schedule("linear:1e-3:0:0.5")(0.25) == pytest.approx(5e-4)
    assert as_schedule("cosine:1:0")(0.5) == pytest.approx(0.5)
    assert as_schedule("cosine:1:0:0.5")(0.5) == pytest.approx(0.0)
    assert as_schedule("exponential:1:0.5")(1.0) == pytest.approx(0.5)
    assert as_schedule("exponential:1:0.5:0.1:0.3")(1.0) == pytest.approx(0.3)


def test_words_that_say_no_schedule_are_refused():
    with pytest.raises(UnknownNameError, match="Did you mean 'linear'"):
        as_schedule("liner:1:0")
    with pytest.raises(ConfigError, match=r"'linear:1' arrived; it must read linear:start:end\[:over\]"):
        as_schedule("linear:1")
    with pytest.raises(ConfigError, match=r"must read cosine:start:end\[:over\]"):
        as_schedule("cosine:1:zero")
    with pytest.raises(ConfigError, match=r"must read exponential:start:rate\[:over\[:end\]\]"):
        as_schedule("exponential:1:0.5:1:0:7")


def test_settings_out_of_range_are_refused_when_the_schedule_is_made():
    with pytest.raises(ConfigError, match="boundaries must rise"):
        Piecewise((0.5, 0.1), (1.0, 2.0, 3.0))
    with pytest.raises(ConfigError, match="one value more"):
        Piecewise((0.5,), (1.0,))
    with pytest.raises(ConfigError, match="all three above 0"):
        Exponential(1.0, 0.0)


@pytest.mark.parametrize("words", ["linear:1:0:100000", "cosine:1:0:100000", "exponential:1:0.5:100000"])
def test_a_number_of_steps_is_refused_where_a_share_of_the_run_belongs(words):
    with pytest.raises(ConfigError, match=r"over=100000\.0; it is a share of the run, from 0 to 1"):
        as_schedule(words)


def test_a_schedule_over_no_share_is_at_its_end():
    assert LinearSchedule(1.0, 0.2, over=0)(0.1) == pytest.approx(0.2)
    assert math.isfinite(LinearSchedule(1.0, 0.2, over=0)(0))
