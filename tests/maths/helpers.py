"""One test, every way to run a function: NumPy, JAX, JAX under jit, PyTorch, and the strict array API."""

import warnings

import array_api_strict as strict
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from starling.backends import get_backend, ops
from starling.backends.dispatch import register_ops
from starling.backends.extras import make_ops
from starling.backends.numpy import cond, loop_scan
from starling.core.trees import leaves, map_leaves

with warnings.catch_warnings():  # its own imports are deprecated; ours are not
    warnings.simplefilter("ignore")
    import rlax

__all__ = ["RUNNERS", "Runner", "allclose", "check_gradients", "f32", "i32", "reference", "rlax"]

register_ops(type(strict.asarray(0.0)), make_ops(strict, scan=loop_scan(strict.stack), cond=cond))
# JAX without jit compiles every operation on its own: as long as all the others together.
RUNNERS = ("numpy", pytest.param("jax", marks=pytest.mark.slow), "jit", "torch", "strict")
_into = {"numpy": lambda x: x, "jax": jnp.asarray, "torch": torch.tensor, "strict": strict.asarray}
_compiled = {}
_references = {}


def f32(values):
    return np.asarray(values, dtype=np.float32)


def i32(values):
    return np.asarray(values, dtype=np.int32)


class Runner:
    """Calls ``fn`` with its NumPy arguments turned into arrays of one kind, and brings the result back."""

    def __init__(self, name):
        self.name = name

    def __call__(self, fn, *args, **kwargs):
        arrays = {key: x for key, x in [*enumerate(args), *kwargs.items()] if _holds_arrays(x)}

        def run(arrays):
            positional = [arrays.get(i, x) for i, x in enumerate(args)]
            return fn(*positional, **{key: arrays.get(key, x) for key, x in kwargs.items()})

        if self.name == "jit":
            keys = list(arrays)
            static = (fn, tuple(keys), repr([x for x in (*args, *kwargs.items()) if not _holds_arrays(x)]))
            if static not in _compiled:  # a test that calls in a loop compiles once
                _compiled[static] = jax.jit(lambda values: run(dict(zip(keys, values))))
            result = _compiled[static]([map_leaves(jnp.asarray, arrays[key]) for key in keys])
        else:
            into = _into[self.name]
            result = run({key: map_leaves(into, x) for key, x in arrays.items()})
        return map_leaves(_check_and_return, result)


def _holds_arrays(value):
    found = leaves(value)
    return bool(found) and all(isinstance(leaf, (np.ndarray, np.generic)) for leaf in found)


def _check_and_return(leaf):
    """As NumPy, refusing float64 and int64: float32 in, float32 out."""
    if isinstance(leaf, (int, float)):
        return leaf
    result = leaf.numpy() if isinstance(leaf, torch.Tensor) else np.asarray(leaf)
    assert result.dtype in (np.float32, np.int32, np.bool_), f"{result.dtype} came out"
    return result


def allclose(actual, expected, rtol=1e-5, atol=1e-6):
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


def reference(fn, *args, axis=0):
    """A function of rlax, which takes one sequence or transition at a time, over ``axis`` of its array arguments.

    Worked out once for all runners: eagerly, and once for each of them, it would be most of the time of the tests.
    """
    key = (fn, axis, *(x.tobytes() if isinstance(x, np.ndarray) else x for x in args))
    if key not in _references:
        arrays = [x for x in args if isinstance(x, np.ndarray)]

        def one(*columns):
            left = iter(columns)
            return fn(*(next(left) if isinstance(x, np.ndarray) else x for x in args))

        result = jax.jit(jax.vmap(one, in_axes=axis, out_axes=axis))(*arrays)
        _references[key] = jax.tree.map(np.asarray, result)
    return _references[key]


def check_gradients(loss, *params, fixed=(), rtol=2e-3, atol=2e-4):
    """The gradients of the mean of ``loss(*params, *fixed)`` agree between JAX, PyTorch and central differences."""

    def mean_loss(params, *fixed):
        out = loss(*params, *fixed)
        return ops(out).mean(out), None

    results = {}
    for name in ("numpy", "jax", "torch"):
        backend = get_backend(name)
        differentiate = backend.compile(lambda params, *fixed: ops(params[0]).value_and_grad(mean_loss)(params, *fixed))
        (value, _), gradients = differentiate(*backend.from_numpy([list(params), *fixed]))
        results[name] = backend.to_numpy((value, gradients))
    for name in ("jax", "torch"):
        allclose(results[name][0], results["numpy"][0], rtol=1e-4, atol=1e-5)
        for mine, reference in zip(results[name][1], results["numpy"][1]):
            assert mine.dtype == np.float32
            allclose(mine, reference, rtol, atol)
    return results["numpy"][1]
