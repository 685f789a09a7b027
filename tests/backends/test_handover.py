"""Memory that was passed to a backend, and when it may be written again."""

import numpy as np
import pytest

from starling.backends import get_backend, ops

ROWS = 4096


def aligned(rows=ROWS, value=1.0):
    """Memory of the kind that jax reads in place: it begins at a multiple of 64 bytes."""
    raw = np.empty(rows * 4 + 64, np.uint8)
    start = -raw.ctypes.data % 64
    array = raw[start : start + rows * 4].view(np.float32)
    array[:] = value
    return array


def steps_of(length):
    """A function that adds its argument, read at the end, to what ``length`` steps have made."""

    def run(x, start):
        xp = ops(start)
        total, _ = xp.scan(lambda carry, _: (xp.tanh(carry), carry[0] * 0.0), start, xp.zeros((length, 1)))
        return x + 0.0 * total

    return run


@pytest.mark.parametrize("length", [3, 30])
def test_after_waiting_what_was_passed_may_be_written_again(backend, length):
    compiled, x, start = backend.compile(steps_of(length)), aligned(), aligned(value=0.5)
    for value in (1.0, 2.0, 3.0):
        x[:] = value
        result = compiled(x, start)
        backend.wait({"result": result})
        x[:] = -1.0
        np.testing.assert_array_equal(backend.to_numpy(result), np.full(ROWS, value, np.float32))


def test_jax_reads_what_it_was_passed_after_the_call_has_returned():
    """Why there is ``wait``: what is written too early is seen. The function is made longer until it is so."""
    backend = get_backend("jax")
    for length in (2_000 * 2**n for n in range(8)):
        compiled, x, start = backend.compile(steps_of(length)), aligned(), aligned(value=0.5)
        backend.wait(compiled(x, start))
        result = compiled(x, start)
        x[:] = -1.0
        if backend.to_numpy(result)[0] == -1.0:
            return
    pytest.fail("jax copied what it was passed; if that is its rule now, ``wait`` has nothing to do.")


def test_what_was_made_from_numpy_is_a_copy(backend):
    x = aligned()
    made = backend.from_numpy({"x": x, "fixed": (x[:2],)})
    x[:] = -1.0
    np.testing.assert_array_equal(backend.to_numpy(made)["x"], np.ones(ROWS))
    np.testing.assert_array_equal(backend.to_numpy(made)["fixed"][0], np.ones(2))


def test_what_was_made_from_numpy_behind_a_long_computation_is_a_copy(backend):
    slow, start = backend.compile(steps_of(2_000)), aligned(value=0.5)
    result = slow(aligned(), start)
    x = aligned()
    made = backend.from_numpy(x)
    x[:] = -1.0
    backend.wait(result)
    np.testing.assert_array_equal(backend.to_numpy(made), np.ones(ROWS))
