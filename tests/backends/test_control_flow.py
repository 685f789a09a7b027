"""scan and cond, on every backend, compiled and not."""

import numpy as np
import pytest

from starling.backends import get_backend, ops


def f32(values):
    return np.asarray(values, dtype=np.float32)


@pytest.fixture(params=["as it is", "compiled"])
def call(request, backend):
    def run(fn, *args):
        if request.param == "compiled":
            return backend.to_numpy(backend.compile(fn)(*args))
        return backend.to_numpy(fn(*backend.from_numpy(list(args))))

    return run


def weigh(carry, x):
    """A step over trees: the running sum, and what it was before."""
    return {"sum": carry["sum"] + x["a"] * x["b"]}, (carry["sum"], x["a"])


def test_a_scan_over_trees_goes_forward(call):
    xs = {"a": f32([[1.0], [2.0], [3.0]]), "b": f32([[10.0], [10.0], [10.0]])}
    carry, (before, a) = call(lambda xs: ops(xs["a"]).scan(weigh, {"sum": ops(xs["a"]).zeros_like(xs["a"][0])}, xs), xs)
    np.testing.assert_allclose(carry["sum"], [60.0])
    np.testing.assert_allclose(before, [[0.0], [10.0], [30.0]])
    np.testing.assert_allclose(a, xs["a"])


def test_a_scan_over_trees_goes_backwards_and_keeps_the_order_of_its_results(call):
    xs = {"a": f32([[1.0], [2.0], [3.0]]), "b": f32([[10.0], [10.0], [10.0]])}

    def backwards(xs):
        xp = ops(xs["a"])
        return xp.scan(weigh, {"sum": xp.zeros_like(xs["a"][0])}, xs, reverse=True)

    carry, (before, a) = call(backwards, xs)
    np.testing.assert_allclose(carry["sum"], [60.0])
    np.testing.assert_allclose(before, [[50.0], [30.0], [0.0]])
    np.testing.assert_allclose(a, xs["a"])


def test_a_scan_of_one_step_and_one_without_results(call):
    def count(x):
        xp = ops(x)
        return xp.scan(lambda carry, x: (carry + x, None), xp.zeros_like(x[0]), x)

    carry, ys = call(count, f32([4.0]))
    assert carry == 4.0
    assert ys is None


def test_gradients_flow_through_a_scan(backend):
    def loss(p, x):
        xp = ops(x)
        final, _ = xp.scan(lambda carry, x: (carry * p["w"] + x, carry), xp.zeros_like(x[0]), x)
        return final, None

    # x0 w² + x1 w + x2 at w = 2: the derivative is 2 x0 w + x1
    params, x = backend.from_numpy({"w": f32(2.0)}), backend.from_numpy(f32([3.0, 5.0, 7.0]))
    (value, _), gradients = backend.to_numpy(backend.ops.value_and_grad(loss)(params, x))
    np.testing.assert_allclose(value, 29.0)
    np.testing.assert_allclose(gradients["w"], 17.0, rtol=1e-4)


def test_cond_takes_one_branch(call):
    def choose(flag, x):
        return ops(x).cond(flag, lambda x: {"y": x + 1.0}, lambda x: {"y": x * 10.0}, x)

    assert call(choose, np.array(True), f32([2.0]))["y"] == 3.0
    assert call(choose, np.array(False), f32([2.0]))["y"] == 20.0


def test_a_jax_scan_compiles_to_one_loop():
    import jax

    xp = get_backend("jax").ops

    def run(x):
        return xp.scan(lambda carry, x: (carry + x, carry), xp.zeros_like(x[0]), x)

    short, long = (jax.jit(run).lower(np.zeros((n, 2), "f")).as_text() for n in (4, 256))
    assert long.count("stablehlo.while") == 1
    assert long.count("\n") == short.count("\n")
