"""The extras, and the standard's functions a backend replaced, against hand-worked values and naive loops."""

import itertools
import math

import numpy as np
import pytest

from starling.backends import ops

EXTREME = np.array([[1e4, 0.0, -1e4], [-3e4, -3e4, -3e4], [1.0, 2.0, 3.0]], dtype=np.float32)


def f32(values):
    return np.asarray(values, dtype=np.float32)


@pytest.fixture
def call(backend):
    def run(fn, *args):
        return backend.to_numpy(fn(backend.ops, *backend.from_numpy(list(args))))

    return run


def test_relu_and_softplus(call):
    x = f32([-100.0, -1.0, 0.0, 1.0, 30.0, 100.0])
    np.testing.assert_allclose(call(lambda xp, x: xp.relu(x), x), np.maximum(x, 0))
    softplus = call(lambda xp, x: xp.softplus(x), x)
    np.testing.assert_allclose(softplus, np.logaddexp(0, x.astype(np.float64)), rtol=1e-5, atol=1e-30)
    assert softplus.dtype == np.float32


def test_logsumexp_and_log_softmax_at_extreme_values(call):
    logsumexp = call(lambda xp, x: xp.logsumexp(x, axis=-1), EXTREME)
    np.testing.assert_allclose(logsumexp, [1e4, -3e4 + math.log(3), 3.4076059], rtol=1e-6)
    log_softmax = call(lambda xp, x: xp.log_softmax(x), EXTREME)
    np.testing.assert_allclose(log_softmax[0], [0.0, -1e4, -2e4])
    np.testing.assert_allclose(log_softmax[1], [-math.log(3)] * 3, rtol=1e-6)


def test_logsumexp_along_other_axes_and_kept_dimensions(call, rng):
    x = f32(rng.normal(size=(3, 4)))
    expected = np.log(np.exp(x).sum(axis=0))
    np.testing.assert_allclose(call(lambda xp, x: xp.logsumexp(x, axis=0), x), expected, rtol=1e-5, atol=1e-6)
    assert call(lambda xp, x: xp.logsumexp(x, axis=0, keepdims=True), x).shape == (1, 4)
    np.testing.assert_allclose(
        np.exp(call(lambda xp, x: xp.log_softmax(x, axis=0), x)).sum(axis=0), np.ones(4), rtol=1e-5
    )


def test_logsumexp_of_nothing_possible_is_minus_infinity(call):
    x = f32([[-np.inf, -np.inf], [-np.inf, 0.0]])
    with np.errstate(divide="ignore"):
        assert call(lambda xp, x: xp.logsumexp(x), x).tolist() == [-np.inf, 0.0]


def test_erf_is_right_to_float32(call):
    x = f32(np.linspace(-4, 4, 161))
    expected = [math.erf(v) for v in x]
    np.testing.assert_allclose(call(lambda xp, x: xp.erf(x), x), expected, rtol=1e-5, atol=3e-7)


def test_one_hot(call):
    result = call(lambda xp, i: xp.one_hot(i, 3), np.array([[0, 2], [1, 1]], dtype=np.int32))
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, np.eye(3)[[[0, 2], [1, 1]]])


@pytest.mark.parametrize("shape", [(), (4,), (2, 4), (2, 3, 4)])
def test_take_along_picks_one_per_row(call, rng, shape):
    x, index = f32(rng.normal(size=(*shape, 5))), rng.integers(5, size=shape).astype(np.int32)
    result = call(lambda xp, x, i: xp.take_along(x, i), x, np.asarray(index, dtype=np.int32))
    assert result.shape == shape
    np.testing.assert_array_equal(result, np.take_along_axis(x, np.asarray(index)[..., None], axis=-1)[..., 0])


def test_reductions_over_every_kind_of_axis(call, rng):
    x = f32(rng.normal(size=(2, 3, 4)))
    for axis, keepdims, name in itertools.product((None, 0, -1, (0, 2)), (False, True), ("sum", "max", "min", "mean")):
        over = {"axis": axis, "keepdims": keepdims}
        result = call(lambda xp, x, name=name, over=over: getattr(xp, name)(x, **over), x)
        expected = getattr(np, name)(x, **over)
        assert result.shape == expected.shape
        assert result.dtype == np.float32
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_argmax_astype_and_cumulative_sum(call, rng):
    x = f32(rng.normal(size=(3, 4)))
    np.testing.assert_array_equal(call(lambda xp, x: xp.argmax(x, axis=-1), x), x.argmax(axis=-1))
    assert call(lambda xp, x: xp.argmax(x, axis=0, keepdims=True), x).shape == (1, 4)
    assert call(lambda xp, x: xp.astype(x, xp.int32), x).dtype == np.int32
    np.testing.assert_allclose(call(lambda xp, x: xp.cumulative_sum(x, axis=0), x), x.cumsum(axis=0), rtol=1e-5)
    counted = call(lambda xp, x: xp.sum(xp.astype(x > 0, xp.int32), axis=-1, dtype=xp.int32), x)
    assert counted.dtype == np.int32


def test_python_numbers_do_not_widen_float32(call):
    x = f32([1.0, 2.0])
    for fn in (
        lambda xp, x: x * 0.5 + 1,
        lambda xp, x: xp.where(x > 1.0, x, 0.0),
        lambda xp, x: xp.minimum(xp.maximum(x, 0.5), 1.5),
        lambda xp, x: xp.clip(x, 0.0, 1.5),
        lambda xp, x: xp.mean(x) + xp.std(x) + xp.var(x),
        lambda xp, x: 0.3 + xp.zeros_like(x),
    ):
        assert call(fn, x).dtype == np.float32


def naive_conv2d(x, kernel, stride, padding):
    kh, kw = kernel.shape[:2]
    x = x.astype(np.float64)
    if padding == "SAME":
        x = pad_same(x, kh, kw, stride, 0.0)
    rows, columns = (x.shape[1] - kh) // stride + 1, (x.shape[2] - kw) // stride + 1
    out = np.zeros((len(x), rows, columns, kernel.shape[-1]))
    for b, i, j in np.ndindex(len(x), rows, columns):
        window = x[b, i * stride : i * stride + kh, j * stride : j * stride + kw]
        out[b, i, j] = (window[..., None] * kernel).sum(axis=(0, 1, 2))
    return out


def naive_max_pool2d(x, window, stride, padding):
    if padding == "SAME":
        x = pad_same(x, window, window, stride, -np.inf)
    rows, columns = (x.shape[1] - window) // stride + 1, (x.shape[2] - window) // stride + 1
    out = np.zeros((len(x), rows, columns, x.shape[-1]))
    for b, i, j in np.ndindex(len(x), rows, columns):
        out[b, i, j] = x[b, i * stride : i * stride + window, j * stride : j * stride + window].max(axis=(0, 1))
    return out


def pad_same(x, kh, kw, stride, fill):
    """TensorFlow's rule: as many windows as strides fit, the odd zero at the end."""
    pads = [(0, 0)]
    for size, k in ((x.shape[1], kh), (x.shape[2], kw)):
        total = max((-(-size // stride) - 1) * stride + k - size, 0)
        pads.append((total // 2, total - total // 2))
    return np.pad(x, [*pads, (0, 0)], constant_values=fill)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("kernel", "stride"), [((3, 3), 1), ((3, 3), 2), ((4, 2), 3), ((1, 1), 1)])
def test_convolutions_match_a_naive_loop(call, rng, padding, kernel, stride):
    x, w = f32(rng.normal(size=(2, 8, 7, 3))), f32(rng.normal(size=(*kernel, 3, 5)))
    result = call(lambda xp, x, w: xp.conv2d(x, w, stride=stride, padding=padding), x, w)
    np.testing.assert_allclose(result, naive_conv2d(x, w, stride, padding), rtol=1e-4, atol=1e-4)
    assert result.dtype == np.float32


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("window", "stride"), [(2, 2), (3, 2), (3, 1)])
def test_pooling_matches_a_naive_loop(call, rng, padding, window, stride):
    x = f32(rng.normal(size=(2, 7, 8, 3))) - 5.0  # all below zero: padding must not win
    result = call(lambda xp, x: xp.max_pool2d(x, window, stride, padding), x)
    np.testing.assert_allclose(result, naive_max_pool2d(x, window, stride, padding))


def test_gradients_of_images_agree_with_central_differences(rng):
    from starling.backends import get_backend

    x, w = f32(rng.normal(size=(1, 5, 5, 2))), f32(rng.normal(size=(3, 3, 2, 2)))

    def loss(p, x):
        xp = ops(x)
        hidden = xp.conv2d(x, p["w"], stride=1, padding="SAME")
        return xp.sum(xp.max_pool2d(hidden, 2, 2, "SAME") ** 2), None

    results = {}
    for name in ("numpy", "jax", "torch"):
        backend = get_backend(name)
        params = backend.from_numpy({"w": w})
        results[name] = backend.to_numpy(backend.ops.value_and_grad(loss)(params, backend.from_numpy(x)))[1]["w"]
    np.testing.assert_allclose(results["jax"], results["numpy"], rtol=1e-3, atol=1e-2)
    np.testing.assert_allclose(results["torch"], results["numpy"], rtol=1e-3, atol=1e-2)
