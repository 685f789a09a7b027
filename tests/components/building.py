"""Build a component alone on every backend, and compare what it says there."""

from collections.abc import Callable
from typing import Any

import numpy as np

from starling.backends import available, get_backend, ops
from starling.components.base import Component
from starling.components.graph.assembly import assemble
from starling.components.graph.build import build, create_parameters
from starling.core.spaces import Space
from starling.core.trees import items, leaves

BACKENDS = available()


def initial(component: Component, **spaces: Space) -> Any:
    """The parameters a component is built with."""
    return create_parameters(assemble(component, spaces), seed=0)


def everywhere(
    component: Component,
    spaces: dict[str, Space],
    api: str | Callable[..., Any],
    *values: Any,
    params: Any = None,
    gradient: bool = True,
) -> Any:
    """The result of ``api`` on NumPy, after checking that the other backends say the same.

    ``api`` may be a function of (component, p, *values). With ``gradient``, the gradient of the sum of the squares of
    the result is checked too: finite, and the same on JAX and PyTorch.
    """
    call = api if callable(api) else lambda c, p, *args: getattr(c, api)(p, *args)
    assembly = assemble(component, spaces)
    results, gradients = {}, {}
    for name in BACKENDS:
        graph = build(assembly, get_backend(name))
        placed = graph.parameters() if params is None else graph.place(params)
        backend = graph.backend
        wanted = _with_gradient if gradient and name != "numpy" else _alone
        run = backend.compile(lambda *args, wanted=wanted: wanted(component, call, *args))
        results[name], gradients[name] = backend.to_numpy(run(placed, *values))
    assert_same(*results.values(), tolerance=1e-5)
    if gradient:
        del gradients["numpy"]  # there it is central differences, one parameter at a time
        assert all(np.isfinite(leaf).all() for leaf in leaves(gradients))
        assert any(np.any(leaf) for leaf in leaves(gradients))
        assert_same(*gradients.values(), tolerance=1e-4)
    return results["numpy"]


def _alone(component: Component, call: Callable[..., Any], p: Any, *args: Any) -> Any:
    return call(component, p, *args), {}


def _with_gradient(component: Component, call: Callable[..., Any], p: Any, *args: Any) -> Any:
    def loss(p: Any) -> Any:
        result = call(component, p, *args)
        xp = ops(leaves(result)[0])
        return sum(xp.sum(xp.square(xp.astype(leaf, xp.float32))) for leaf in leaves(result)), result

    (_, result), gradient = ops(leaves(p)[0]).value_and_grad(loss)(p)
    return result, gradient


def assert_same(first: Any, *others: Any, tolerance: float) -> None:
    """The same paths, kinds and numbers, relative to the largest of them."""
    for other in others:
        assert [path for path, _ in items(first)] == [path for path, _ in items(other)]
        for (path, here), (_, there) in zip(items(first), items(other)):
            assert np.shape(here) == np.shape(there), path
            assert np.asarray(here).dtype.kind == np.asarray(there).dtype.kind, path
            scale = max(1.0, float(np.abs(np.asarray(here, np.float64)).max(initial=0.0)))
            np.testing.assert_allclose(there, here, rtol=tolerance, atol=tolerance * scale, err_msg=path)
