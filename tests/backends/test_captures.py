"""Captured values leave gradients, loops and branches alike on every backend."""

import numpy as np
import pytest

from starling.backends import capture, capturing, ops


def f32(values):
    return np.asarray(values, dtype=np.float32)


@pytest.fixture(params=["as it is", "compiled"])
def watch(request, backend):
    """``fn(*args)`` with what it captured: (result, values)."""

    def run(fn, *args):
        def watched(*args):
            with capturing() as values:
                result = fn(*args)
            return result, dict(values)

        if request.param == "compiled":
            return backend.to_numpy(backend.compile(watched)(*args))
        return backend.to_numpy(watched(*backend.from_numpy(list(args))))

    return run


def test_outside_of_a_capturing_block_nothing_is_kept():
    capture("lost", 1.0)
    with capturing() as values:
        pass
    assert values == {}


def test_the_last_value_of_a_name_stays(watch):
    def fn(x):
        capture("x", x)
        capture("x", x + 1.0)
        return x

    assert watch(fn, f32(1.0))[1]["x"] == 2.0


def test_an_inner_block_keeps_its_values_to_itself():
    with capturing() as outer:
        capture("a", 1)
        with capturing() as inner:
            capture("b", 2)
        capture("c", 3)
    assert (outer, inner) == ({"a": 1, "c": 3}, {"b": 2})


def test_capturing_ends_with_its_block_even_after_an_error():
    with pytest.raises(RuntimeError, match="inside"), capturing():
        raise RuntimeError("inside")
    with capturing() as values:
        capture("after", 1)
    assert values == {"after": 1}


def test_values_leave_value_and_grad(watch):
    def step(p, x):
        def loss(p):
            y = p["w"] * x
            capture("net.y", y)
            return ops(y).sum(y), None

        (value, _), gradients = ops(x).value_and_grad(loss)(p)
        capture("loss", value)
        return gradients

    gradients, values = watch(step, {"w": f32([1.0, 2.0])}, f32([3.0, 4.0]))
    np.testing.assert_allclose(gradients["w"], [3.0, 4.0], rtol=1e-4)
    np.testing.assert_allclose(values["net.y"], [3.0, 8.0])
    np.testing.assert_allclose(values["loss"], 11.0)


@pytest.mark.parametrize("reverse", [False, True])
def test_values_leave_a_scan_with_time_in_front(watch, reverse):
    def run(x):
        def step(carry, x):
            capture("cell.state", carry + x)
            return carry + x, None

        return ops(x).scan(step, ops(x).zeros_like(x[0]), x, reverse=reverse)[0]

    _, values = watch(run, f32([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(values["cell.state"], [6.0, 5.0, 3.0] if reverse else [1.0, 3.0, 6.0])


def test_values_leave_a_branch(watch):
    def run(flag, x):
        def branch(factor):
            def take(x):
                capture("taken", x * factor)
                return x

            return take

        return ops(x).cond(flag, branch(2.0), branch(3.0), x)

    assert watch(run, np.array(False), f32(1.0))[1]["taken"] == 3.0


def test_values_leave_a_scan_inside_a_gradient(watch):
    def step(p, x):
        def loss(p):
            def cell(carry, x):
                capture("h", carry * p["w"])
                return carry * p["w"] + x, None

            final, _ = ops(x).scan(cell, ops(x).zeros_like(x[0]), x)
            return final, None

        return ops(x).value_and_grad(loss)(p)[1]

    _, values = watch(step, {"w": f32(2.0)}, f32([1.0, 1.0]))
    np.testing.assert_allclose(values["h"], [0.0, 2.0])


def test_recorded_tensors_hold_no_graph():
    import torch

    from starling.backends import get_backend

    def loss(p):
        capture("y", p["w"] * 2.0)
        return ops(p["w"]).sum(p["w"]), None

    with capturing() as values:
        get_backend("torch").ops.value_and_grad(loss)({"w": torch.ones(2)})
    assert not values["y"].requires_grad
