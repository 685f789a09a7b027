"""Recorded values leave gradients, loops and branches alike on every backend."""

import numpy as np
import pytest

from starling.backends import ops, record, recording


def f32(values):
    return np.asarray(values, dtype=np.float32)


@pytest.fixture(params=["as it is", "compiled"])
def watch(request, backend):
    """``fn(*args)`` with what it recorded: (result, values)."""

    def run(fn, *args):
        def watched(*args):
            with recording() as values:
                result = fn(*args)
            return result, dict(values)

        if request.param == "compiled":
            return backend.to_numpy(backend.compile(watched)(*args))
        return backend.to_numpy(watched(*backend.from_numpy(list(args))))

    return run


def test_without_a_tape_nothing_is_kept():
    record("lost", 1.0)
    with recording() as values:
        pass
    assert values == {}


def test_the_last_value_of_a_name_stays(watch):
    def fn(x):
        record("x", x)
        record("x", x + 1.0)
        return x

    assert watch(fn, f32(1.0))[1]["x"] == 2.0


def test_an_inner_tape_keeps_its_values_to_itself():
    with recording() as outer:
        record("a", 1)
        with recording() as inner:
            record("b", 2)
        record("c", 3)
    assert (outer, inner) == ({"a": 1, "c": 3}, {"b": 2})


def test_a_tape_ends_with_its_block_even_after_an_error():
    with pytest.raises(RuntimeError, match="inside"), recording():
        raise RuntimeError("inside")
    with recording() as values:
        record("after", 1)
    assert values == {"after": 1}


def test_values_leave_value_and_grad(watch):
    def step(p, x):
        def loss(p):
            y = p["w"] * x
            record("net.y", y)
            return ops(y).sum(y), None

        (value, _), gradients = ops(x).value_and_grad(loss)(p)
        record("loss", value)
        return gradients

    gradients, values = watch(step, {"w": f32([1.0, 2.0])}, f32([3.0, 4.0]))
    np.testing.assert_allclose(gradients["w"], [3.0, 4.0], rtol=1e-4)
    np.testing.assert_allclose(values["net.y"], [3.0, 8.0])
    np.testing.assert_allclose(values["loss"], 11.0)


@pytest.mark.parametrize("reverse", [False, True])
def test_values_leave_a_scan_with_time_in_front(watch, reverse):
    def run(x):
        def step(carry, x):
            record("cell.state", carry + x)
            return carry + x, None

        return ops(x).scan(step, ops(x).zeros_like(x[0]), x, reverse=reverse)[0]

    _, values = watch(run, f32([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(values["cell.state"], [6.0, 5.0, 3.0] if reverse else [1.0, 3.0, 6.0])


def test_values_leave_a_branch(watch):
    def run(flag, x):
        def branch(factor):
            def take(x):
                record("taken", x * factor)
                return x

            return take

        return ops(x).cond(flag, branch(2.0), branch(3.0), x)

    assert watch(run, np.array(False), f32(1.0))[1]["taken"] == 3.0


def test_values_leave_a_scan_inside_a_gradient(watch):
    def step(p, x):
        def loss(p):
            def cell(carry, x):
                record("h", carry * p["w"])
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
        record("y", p["w"] * 2.0)
        return ops(p["w"]).sum(p["w"]), None

    with recording() as values:
        get_backend("torch").ops.value_and_grad(loss)({"w": torch.ones(2)})
    assert not values["y"].requires_grad
