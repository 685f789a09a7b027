"""value_and_grad and stop_gradient, on every backend."""

import numpy as np
import pytest

from starling.backends import ops
from starling.core.params import Params


def f32(values):
    return np.asarray(values, dtype=np.float32)


def differentiate(backend, fn, params, *args):
    result = backend.ops.value_and_grad(fn)(backend.from_numpy(params), *backend.from_numpy(list(args)))
    return backend.to_numpy(result)


def test_value_aux_and_gradients_by_hand(backend):
    def loss(p, x):
        y = p["w"] * x + p["b"]  # [2]
        return ops(y).sum(y * y), {"y": y, "name": None}

    params = {"w": f32([1.0, 2.0]), "b": f32(0.5)}
    (value, aux), gradients = differentiate(backend, loss, params, f32([3.0, -1.0]))
    np.testing.assert_allclose(aux["y"], [3.5, -1.5])
    np.testing.assert_allclose(value, 14.5)
    np.testing.assert_allclose(gradients["w"], [21.0, 3.0], rtol=1e-4)
    np.testing.assert_allclose(gradients["b"], 4.0, rtol=1e-4)
    assert aux["name"] is None
    assert gradients["w"].dtype == gradients["b"].dtype == np.float32
    assert gradients["b"].shape == ()


def test_parameters_without_influence_have_zero_gradients(backend):
    def loss(p):
        return ops(p["used"]).sum(p["used"]), None

    _, gradients = differentiate(backend, loss, {"used": f32([1.0]), "unused": f32([[2.0, 3.0]])})
    np.testing.assert_allclose(gradients["used"], [1.0], rtol=1e-4)
    np.testing.assert_array_equal(gradients["unused"], [[0.0, 0.0]])


def test_a_loss_that_depends_on_no_parameter_has_zero_gradients(backend):
    (value, _), gradients = differentiate(backend, lambda p, x: (ops(x).sum(x), None), {"w": f32([1.0])}, f32([2.0]))
    assert value == 2.0
    np.testing.assert_array_equal(gradients["w"], [0.0])


def test_gradients_keep_the_shape_of_nested_scopes(backend):
    params = Params(a=Params(w=f32([1.0])), b=[f32([2.0]), f32([3.0])])
    _, gradients = differentiate(backend, lambda p: (ops(p.a.w).sum(p.a.w * p.b[0] * p.b[1]), None), params)
    assert isinstance(gradients, Params)
    assert isinstance(gradients["a"], Params)
    np.testing.assert_allclose(gradients.a.w, [6.0], rtol=1e-4)
    np.testing.assert_allclose(gradients["b"][1], [2.0], rtol=1e-4)


def test_nothing_flows_through_stop_gradient(backend):
    def loss(p):
        xp = ops(p["w"])
        return xp.sum(xp.stop_gradient(p["w"] * p["w"]) * p["w"]), None

    (value, _), gradients = differentiate(backend, loss, {"w": f32([2.0, -3.0])})
    np.testing.assert_allclose(value, 8.0 - 27.0)
    np.testing.assert_allclose(gradients["w"], [4.0, 9.0], rtol=1e-4)


def test_stop_gradient_inside_a_scan(backend):
    def loss(p):
        xp = ops(p["w"])

        def step(carry, x):
            carry = carry + xp.stop_gradient(p["w"] * x) * p["w"]
            return carry, carry

        total, _ = xp.scan(step, xp.zeros_like(p["w"]), xp.ones_like(p["w"]) * xp.asarray([1.0, 2.0, 3.0]))
        return total, None

    # Σ x · sg(w) · w = 6 w²: the gradient is 6 w
    params = {"w": f32(2.0)}
    (value, _), gradients = differentiate(backend, loss, params)
    np.testing.assert_allclose(value, 24.0)
    np.testing.assert_allclose(gradients["w"], 12.0, rtol=1e-4)


def test_gradients_inside_a_compiled_step(backend):
    def step(params, x):
        (loss, _), gradients = ops(x).value_and_grad(lambda p: (ops(x).sum((p["w"] - x) ** 2), None))(params)
        return {"w": params["w"] - 0.25 * gradients["w"]}, loss

    compiled = backend.compile(step)
    params = backend.from_numpy({"w": f32([4.0])})
    losses = []
    for _ in range(3):
        params, loss = compiled(params, f32([2.0]))
        losses.append(float(loss))
    np.testing.assert_allclose(losses, [4.0, 1.0, 0.25], rtol=1e-3)


def test_a_compiled_step_leaves_no_graph_behind():
    torch = pytest.importorskip("torch")
    from starling.backends import get_backend

    backend = get_backend("torch")

    def step(params, x):
        (loss, aux), gradients = ops(x).value_and_grad(lambda p: (ops(x).sum(p["w"] * x), p["w"] * 2.0))(params)
        return loss, aux, gradients

    results = backend.compile(step)({"w": torch.ones(2)}, f32([1.0, 2.0]))
    assert not any(t.requires_grad for t in (results[0], results[1], results[2]["w"]))


def test_the_outer_derivative_is_kept_while_an_inner_one_is_taken():
    """NumPy plays back what stop_gradient saw: a nested derivative must not mix the two records."""
    from starling.backends import get_backend

    xp = get_backend("numpy").ops

    def outer(p):
        stopped = xp.stop_gradient(p["w"])
        _, inner = xp.value_and_grad(lambda q: (xp.sum(q["v"] * xp.stop_gradient(q["v"])), None))({"v": f32([3.0])})
        return xp.sum(stopped * p["w"]) + 0.0 * inner["v"][0], None

    _, gradients = xp.value_and_grad(outer)({"w": f32([5.0])})
    np.testing.assert_allclose(gradients["w"], [5.0], rtol=1e-4)


def test_a_derivative_that_fails_leaves_stop_gradient_working(backend):
    class NotAnArray:
        pass

    for params in ({"w": NotAnArray()}, backend.from_numpy({"w": f32([1.0])})):
        with pytest.raises(Exception, match=r".+"):
            backend.ops.value_and_grad(lambda p: (p["missing"], None))(params)
    (value, _), _ = differentiate(
        backend, lambda p: (ops(p["w"]).sum(ops(p["w"]).stop_gradient(p["w"])), None), {"w": f32([2.0])}
    )
    assert value == 2.0
    array = backend.from_numpy(f32([1.0]))
    np.testing.assert_array_equal(backend.to_numpy(backend.ops.stop_gradient(array)), [1.0])
