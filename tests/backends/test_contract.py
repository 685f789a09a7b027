"""What every backend promises."""

import numpy as np
import pytest

from starling.backends import available, get_backend, ops
from starling.backends.extras import STANDARD
from starling.core.errors import ConfigError, MissingExtraError, UnknownNameError
from starling.core.params import Params
from starling.core.trees import items


def f32(values):
    return np.asarray(values, dtype=np.float32)


@pytest.fixture
def tree(rng):
    return {
        "w": f32(rng.normal(size=(2, 3))),
        "inner": {"count": np.int32(4), "flags": np.array([True, False])},
        "pair": (f32([1.0]), np.arange(3, dtype=np.uint8)),
    }


def test_every_operation_is_there_and_no_other_is_offered(backend):
    extras = (
        "relu softplus log_softmax logsumexp erf one_hot take_along stop_gradient value_and_grad scan cond "
        "conv2d max_pool2d"
    )
    for name in [*STANDARD, *extras.split()]:
        assert getattr(backend.ops, name) is not None
    with pytest.raises(AttributeError, match=r"extras\.py"):
        backend.ops.fft  # noqa: B018


def test_arrays_know_their_namespace(backend):
    array = backend.from_numpy(f32([1.0]))
    assert ops(array) is backend.ops
    assert ops(array[0]) is backend.ops


def test_what_is_no_array_has_no_namespace():
    with pytest.raises(TypeError, match="str is not an array"):
        ops("text")


def test_a_tree_goes_there_and_back_unchanged(backend, tree):
    back = backend.to_numpy(backend.from_numpy(tree))
    assert [path for path, _ in items(back)] == [path for path, _ in items(tree)]
    for (_, mine), (_, original) in zip(items(back), items(tree)):
        assert mine.dtype == original.dtype
        np.testing.assert_array_equal(mine, original)
    assert isinstance(back["pair"], tuple)


def test_results_come_back_without_a_copy(backend):
    array = backend.from_numpy(f32([1.0, 2.0]))
    first, second = backend.to_numpy(array), backend.to_numpy(array)
    assert np.shares_memory(first, second)


def test_a_compiled_function_takes_numpy_trees(backend, tree):
    fn = backend.compile(lambda t, x: {"y": ops(x).sum(t["w"] * x), "pair": t["pair"]})
    result = backend.to_numpy(fn(tree, f32([1.0, 2.0, 3.0])))
    np.testing.assert_allclose(result["y"], (tree["w"] * f32([1, 2, 3])).sum(), rtol=1e-6)
    np.testing.assert_array_equal(result["pair"][1], tree["pair"][1])


def test_a_compiled_function_takes_its_own_arrays_and_other_shapes(backend):
    fn = backend.compile(lambda x, y: ops(x).mean(x + y, axis=-1))
    for size in (2, 5):
        x = f32(np.arange(2 * size).reshape(2, size))
        result = backend.to_numpy(fn(backend.from_numpy(x), np.ones(size, "f")))
        np.testing.assert_allclose(result, x.mean(axis=-1) + 1)
        assert result.dtype == np.float32


def test_a_compiled_function_takes_python_numbers(backend):
    fn = backend.compile(lambda x, scale: x * scale)
    for scale in (2.0, 3.0):
        np.testing.assert_allclose(backend.to_numpy(fn(f32([1.0, 2.0]), scale)), f32([1, 2]) * scale)


def test_a_compiled_function_takes_read_only_arrays(backend):
    x = f32([1.0, 2.0])
    x.flags.writeable = False
    np.testing.assert_allclose(backend.to_numpy(backend.compile(lambda x: x + 1.0)(x)), [2.0, 3.0])


def test_donated_arguments_give_the_same_result(backend):
    step = backend.compile(lambda p, x: {"w": p["w"] - x}, donate=(0,))
    params = backend.from_numpy({"w": f32([3.0, 4.0])})
    for _ in range(2):
        params = step(params, f32([1.0, 1.0]))
    np.testing.assert_allclose(backend.to_numpy(params)["w"], [1.0, 2.0])


def test_parameter_scopes_pass_through_compiled_functions(backend):
    params = Params(layer=Params(w=f32([[2.0]]), b=f32([1.0])))

    def apply(p, x):
        layer = p.layer
        return Params(y=x @ layer.get("w") + layer.get("b"))

    result = backend.to_numpy(backend.compile(apply)(backend.from_numpy(params), f32([[3.0]])))
    np.testing.assert_allclose(result["y"], [[7.0]])


def test_devices_are_listed_and_arrays_placed_on_them(backend):
    first, *_ = backend.devices()
    assert first == "cpu:0"
    placed = backend.from_numpy({"x": f32([1.0])}, [first])
    np.testing.assert_array_equal(backend.to_numpy(placed)["x"], [1.0])
    found = backend.compile(lambda p, x: p["x"] + x, devices=[first])(placed, f32([2.0]))
    np.testing.assert_array_equal(backend.to_numpy(found), [3.0])


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        (["gpu:7"], "device 'gpu:7' is not there; .* sees: cpu:0"),
        (["cpu:0", "cpu:0"], "device 'cpu:0' is named twice in cpu:0, cpu:0"),
    ],
)
def test_devices_that_cannot_be_used_are_refused(backend, devices, message):
    for use in (backend.check_devices, lambda d: backend.from_numpy({"x": f32([1.0])}, d)):
        with pytest.raises(ConfigError, match=message):
            use(devices)
    with pytest.raises(ConfigError, match=message):
        backend.compile(lambda x: x, devices=devices)


def test_devices_of_several_kinds_share_no_batch():
    with pytest.raises(ConfigError, match="cpu:0, meta are of several kinds"):
        get_backend("torch").check_devices(["cpu:0", "meta"])


def test_an_unknown_backend_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="Did you mean 'torch'"):
        get_backend("troch")


def test_a_missing_framework_names_the_extra(monkeypatch):
    from starling.backends import base

    monkeypatch.setattr(base, "_loaded", {})
    monkeypatch.setattr(base.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"torch is not installed; .*starling-rl\[torch\]"):
        get_backend("torch")
    assert available() == []


def test_all_three_are_available_here():
    assert available() == ["numpy", "jax", "torch"]
    assert get_backend("jax") is get_backend("jax")


@pytest.mark.parametrize(
    ("lead", "inputs", "outputs"),
    [((7,), 3, 5), ((7,), 5, 3), ((7,), 4, 4), ((2,), 6, 6), ((7,), 3, 1), ((2, 4), 3, 2)],
)
def test_matrix_products_have_the_gradients_worked_out_by_hand(backend, rng, lead, inputs, outputs):
    x, w = rng.normal(size=(*lead, inputs)), rng.normal(size=(inputs, outputs))
    g = rng.normal(size=(*lead, outputs))

    def loss(p):
        xp = ops(p["x"])
        return xp.sum(xp.matmul(p["x"], p["w"]) * p["g"]), None

    def run(p):
        return ops(p["x"]).value_and_grad(loss)(p)

    (value, _), found = backend.compile(run)(backend.from_numpy({"x": f32(x), "w": f32(w), "g": f32(g)}))
    found = backend.to_numpy(found)
    np.testing.assert_allclose(float(value), np.sum(x @ w * g), rtol=2e-4)
    np.testing.assert_allclose(found["x"], g @ w.T, rtol=2e-4, atol=2e-4)
    rows, columns = x.reshape(-1, inputs), g.reshape(-1, outputs)
    np.testing.assert_allclose(found["w"], rows.T @ columns, rtol=2e-4, atol=2e-4)
