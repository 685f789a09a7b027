from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starling.backends import available, get_backend, ops
from starling.core.params import Params
from starling.core.trees import items, map_leaves

TRACED = [name for name in ("numpy", "torch") if name in available()]
Pair = namedtuple("Pair", "first second")

UNARY = ["tanh", "exp", "abs", "square", "sign", "relu", "softplus", "log_softmax", "floor", "negative"]
BINARY = ["+", "-", "*", "/", "maximum", "minimum", "where", "matmul", "concat"]
REDUCTIONS = ["sum", "mean", "max", "logsumexp"]


def bounded(x):
    """Keep random programs finite."""
    return ops(x).clip(x, -3.0, 3.0)


def apply(step, x, y):
    kind, name = step
    xp = ops(x)
    if kind == "unary":
        return bounded(-x if name == "negative" else getattr(xp, name)(x))
    if kind == "reduce":
        return x + getattr(xp, name)(x, axis=-1, keepdims=True)
    if kind == "index":
        return xp.concat([x[..., 1:], x[..., :1]], axis=-1)
    match name:
        case "+":
            return bounded(x + y)
        case "-":
            return 1.0 - x - y
        case "*":
            return bounded(x * y)
        case "/":
            return x / (1.0 + abs(y))
        case "where":
            return xp.where(x > y, x, 2 * y)
        case "matmul":
            return bounded(x @ xp.matrix_transpose(y) @ x)
        case "concat":
            return xp.concat([x, y], axis=0)[: x.shape[0], ...]
    return getattr(xp, name)(x, y)


steps = st.one_of(
    st.tuples(st.just("unary"), st.sampled_from(UNARY)),
    st.tuples(st.just("binary"), st.sampled_from(BINARY)),
    st.tuples(st.just("reduce"), st.sampled_from(REDUCTIONS)),
    st.tuples(st.just("index"), st.just("roll")),
)
programs = st.lists(st.tuples(steps, st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12)


def function_of(program):
    def run(p, batch, scale):
        values = [batch["x"] @ p.w, p.inner.b + batch["x"], batch["y"] * scale, batch["x"] * 1.0]
        for step, i, j in program:
            values[i] = apply(step, values[i], values[j])
        return {"sum": sum(values), "all": tuple(values), "params": p}

    return run


def arguments(rng, rows, columns=3):
    p = Params(w=rng.standard_normal((columns, columns)), inner=Params(b=rng.standard_normal(columns)))
    batch = {"y": rng.standard_normal((rows, columns)), "x": rng.standard_normal((rows, columns))}
    return map_leaves(lambda leaf: leaf.astype(np.float32), (p, batch))


def same(backend, found, expected):
    found, expected = dict(items(backend.to_numpy(found))), dict(items(backend.to_numpy(expected)))
    assert list(found) == list(expected)
    for path, value in expected.items():
        np.testing.assert_array_equal(found[path], value, err_msg=path)


@pytest.mark.parametrize("name", TRACED)
@settings(max_examples=40, deadline=None)
@given(program=programs, seed=st.integers(0, 1000))
def test_a_trace_says_what_the_function_says(name, program, seed):
    backend, rng = get_backend(name), np.random.default_rng(seed)
    plain = function_of(program)
    compiled = backend.compile(plain)
    for rows in (4, 4, 2, 4):  # several shapes, and new parameters and data at each call
        p, batch = backend.from_numpy(arguments(rng, rows))
        same(backend, compiled(p, batch, 0.5), plain(p, batch, 0.5))


@pytest.fixture(params=TRACED)
def backend(request):
    return get_backend(request.param)


def test_new_parameters_are_used_at_the_next_call(backend):
    compiled = backend.compile(lambda p, x: x * p.w + p.inner.b)
    for w in (1.0, 2.0, 3.0):
        p = backend.from_numpy(Params(w=np.float32(w), inner=Params(b=np.float32(10 * w))))
        assert backend.to_numpy(compiled(p, np.float32([1, 2]))).tolist() == [11 * w, 12 * w]


def test_parameters_changed_in_place_are_seen():
    p = Params(w=np.zeros(2, np.float32))
    compiled = get_backend("numpy").compile(lambda p, x: x + p.w)
    compiled(p, np.zeros(2, np.float32))
    p["w"][:] = 5
    assert compiled(p, np.zeros(2, np.float32)).tolist() == [5, 5]


def test_python_numbers_are_arguments_and_not_constants(backend):
    compiled = backend.compile(lambda x, scale: x * scale + 1)
    x = np.float32([1, 2])
    assert backend.to_numpy(compiled(x, 2.0)).tolist() == [3, 5]
    assert backend.to_numpy(compiled(x, 3.0)).tolist() == [4, 7]


def test_the_python_runs_once_for_each_shape_and_dtype(backend):
    seen = []

    def run(x):
        seen.append((tuple(x.shape), str(x.dtype).removeprefix("torch.")))
        xp = ops(x)
        return xp.astype(x, xp.float32) / 255 if x.dtype == xp.uint8 else x

    compiled = backend.compile(run)
    for shape, dtype in [((2,), "uint8"), ((2,), "uint8"), ((2,), "float32"), ((3,), "uint8"), ((2,), "float32")]:
        found = backend.to_numpy(compiled(np.full(shape, 51, dtype)))
        np.testing.assert_allclose(found, np.full(shape, 0.2 if dtype == "uint8" else 51), rtol=1e-6)
    assert seen == [((2,), "uint8"), ((2,), "float32"), ((3,), "uint8")]


def decide(x):
    return x * 2 if x[0] > 0 else x - 1


def loop_as_often_as_it_says(x, n):
    for _ in range(n):
        x = x + 1
    return x


def scan_it(x):
    return ops(x).scan(lambda carry, now: (carry + now, carry), x[0] * 0, x)


def differentiate(x):
    return ops(x).value_and_grad(lambda p: (ops(p).sum(p * p), None))(x)[1]


def number_of(x):
    return x * float(x[0])


@pytest.mark.parametrize(
    ("fn", "more"), [(decide, ()), (loop_as_often_as_it_says, (3,)), (scan_it, ()), (number_of, ())]
)
def test_what_depends_on_the_data_is_called_as_it_is(backend, fn, more):
    compiled = backend.compile(fn)
    for values in ([1.0, 2.0], [-1.0, 5.0], [4.0, 0.0]):
        x = np.float32(values)
        same(backend, compiled(x, *more), fn(backend.from_numpy(x), *more))


def test_a_loop_follows_its_count_at_every_call(backend):
    compiled = backend.compile(loop_as_often_as_it_says)
    assert [float(compiled(np.float32([0]), n)[0]) for n in (1, 4, 2)] == [1, 4, 2]


def test_derivatives_are_taken_at_every_call(backend):
    compiled = backend.compile(differentiate)
    for values in ([1.0, 2.0], [3.0, -1.0]):
        np.testing.assert_allclose(backend.to_numpy(compiled(np.float32(values))), 2 * np.float32(values), rtol=1e-3)


def test_results_keep_the_types_of_their_trees(backend):
    compiled = backend.compile(
        lambda p, x: {"p": map_leaves(lambda w: w + x, p), "pair": Pair(x, None), "list": [x, 1]}
    )
    found = compiled(Params(q=Params(w=np.float32(1))), np.float32([1]))
    assert type(found["p"].q) is Params  # an optimiser's step must give parameters that a component can read
    assert type(found["pair"]) is Pair
    assert found["pair"].second is None
    assert found["list"][1] == 1


def test_arguments_may_be_named_tuples_lists_and_none(backend):
    compiled = backend.compile(lambda pair, rest, nothing: pair.first + rest[0] if nothing is None else None)
    for value in (1.0, 2.0):
        found = compiled(Pair(np.float32([value]), np.float32([0])), [np.float32([10])], None)
        assert backend.to_numpy(found).tolist() == [10 + value]


def test_a_dict_with_other_keys_is_another_version(backend):
    compiled = backend.compile(lambda d: sum(d.values()))
    one = np.float32([1])
    assert backend.to_numpy(compiled({"a": one})).tolist() == [1]
    assert backend.to_numpy(compiled({"a": one, "b": one})).tolist() == [2]


def test_errors_of_the_function_come_through(backend):
    with pytest.raises((ValueError, RuntimeError)):
        backend.compile(lambda x: x @ x)(np.zeros((2, 3), np.float32))


def test_attributes_of_the_standard_are_traced(backend):
    compiled = backend.compile(lambda x: (x.mT @ x, x.T, abs(-x), +x, x.size, x.ndim, len(x)))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = backend.to_numpy(compiled(x))
    np.testing.assert_allclose(found[0], x.T @ x)
    np.testing.assert_allclose(found[1], x.T)
    np.testing.assert_allclose(found[2], x)
    assert [int(n) for n in found[4:]] == [6, 2, 2]


@dataclass
class Box:
    content: object


def test_an_object_that_holds_data_is_made_anew_at_every_call(backend):
    compiled = backend.compile(lambda x: Box(x + 1))
    assert [float(compiled(np.float32([value])).content[0]) for value in (1, 5)] == [2, 6]


def test_arguments_that_change_back_and_forth_are_always_looked_at(backend):
    compiled = backend.compile(lambda x, y=None: x * 2 if y is None else x + y)
    small, large = np.float32([[1, 2]]), np.float32([[1, 2], [3, 4]])
    whole = np.array([[1, 2]], np.int32)
    for _ in range(2):
        assert backend.to_numpy(compiled(small)).tolist() == [[2, 4]]
        assert backend.to_numpy(compiled(small, small)).tolist() == [[2, 4]]
        assert backend.to_numpy(compiled(large)).tolist() == [[2, 4], [6, 8]]
        found = backend.to_numpy(compiled(whole))
        assert (found.tolist(), found.dtype) == ([[2, 4]], np.int32)


def test_a_dtype_that_is_equal_but_another_object_is_the_same_version():
    seen = []

    def run(x):
        seen.append(x.dtype)
        return x + 1

    compiled = get_backend("numpy").compile(run)
    again = np.ones(2, np.dtype("float32", metadata={"made": "elsewhere"}))
    for x in (np.ones(2, np.float32), again, again):
        assert compiled(x).tolist() == [2, 2]
    assert len(seen) == 1


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (4,)])
def test_shortcuts_give_what_the_operations_give(backend, rng, shape):
    x = rng.normal(size=shape).astype(np.float32)
    w = rng.normal(size=(4, 5)).astype(np.float32)
    index = rng.integers(4, size=shape[:-1]).astype(np.int32)

    def run(x, w, index):
        xp = ops(x)
        return {
            "matmul": xp.matmul(x, w),
            "sum": [xp.sum(x), xp.sum(x, axis=-1, keepdims=True), xp.sum(xp.astype(x > 0, xp.int32), dtype=xp.int32)],
            "max": [xp.max(x), xp.max(x, axis=0)],
            "min": [xp.min(x), xp.min(x, axis=-1, keepdims=True)],
            "argmax": [xp.argmax(x), xp.argmax(x, axis=-1), xp.argmax(x, axis=-1, keepdims=True)],
            "whole": [xp.astype(x, xp.int32), xp.astype(xp.sum(x), xp.int32)],
            "cumulative": xp.cumulative_sum(x, axis=-1),
            "ends": [xp.relu(x), xp.maximum(x, 0.5), xp.minimum(x, w[0, :4]), xp.maximum(x, w[0, :4])],
            "taken": xp.take_along(x, index) if x.ndim > 1 else x,
        }

    plain = run(*(backend.from_numpy(a) for a in (x, w, index)))
    compiled = backend.compile(run)
    for _ in range(2):
        same(backend, compiled(x, w, index), plain)
