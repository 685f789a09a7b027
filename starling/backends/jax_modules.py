"""Modules of flax and equinox with their parameters outside. Either package is imported only when one arrives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from starling.backends.modules import Adapter
from starling.core.errors import ConfigError
from starling.core.trees import items, nest

__all__ = ["EquinoxAdapter", "LinenAdapter", "NnxAdapter"]

SEED = 0  # of the key that a linen module's parameters are made with


class JaxAdapter(Adapter):
    """What the three share: mapping over examples, and counting."""

    def mapped(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        for _ in range(self.vmap):
            fn = jax.vmap(fn)
        return fn

    def example(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The inputs of the module itself: the first of the examples that are mapped over."""
        return jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[(0,) * self.vmap]), args)

    def check_stateless(self, params: dict[str, Any], *args: Any) -> None:
        """Nothing to check unless a kind of module can hold state."""

    def flops(self, params: dict[str, Any], *args: Any) -> float:
        cost = jax.jit(self.run).lower(params, *args).cost_analysis()
        return float((cost or {}).get("flops", 0.0))


class LinenAdapter(JaxAdapter):
    """``flax.linen``: the module is a description, its parameters are made from an example."""

    def initial(self, *args: Any) -> dict[str, np.ndarray]:
        variables = self.module.init(jax.random.key(SEED), *self.example(args))
        state = sorted(set(variables) - {"params"})
        if state:
            self.refuse_state(f"the collection {state[0]!r}")
        return as_numpy(dict(items(variables.get("params", {}))))

    def run(self, params: dict[str, Any], *args: Any) -> Any:
        return self.mapped(lambda *values: self.module.apply({"params": nest(params)}, *values))(*args)


class NnxAdapter(JaxAdapter):
    """``flax.nnx``: the module holds its parameters; they are taken out and put in."""

    def _split(self) -> tuple[Any, dict[str, Any], dict[tuple[Any, ...], Any]]:
        from flax import nnx

        graph, state, rest = nnx.split(self.module, nnx.Param, ...)
        flat = nnx.to_flat_state(state)
        return graph, {".".join(map(str, path)): (path, variable) for path, variable in flat}, rest

    def initial(self, *args: Any) -> dict[str, np.ndarray]:
        return as_numpy({name: variable.get_value() for name, (_, variable) in self._split()[1].items()})

    def _merged(self, params: dict[str, Any]) -> Any:
        from flax import nnx

        graph, known, rest = self._split()
        state = nnx.from_flat_state(
            [(path, variable.replace(params[name])) for name, (path, variable) in known.items()]
        )
        return nnx.merge(graph, state, rest)

    def run(self, params: dict[str, Any], *args: Any) -> Any:
        return self.mapped(lambda *values: self._merged(params)(*values))(*args)

    def check_stateless(self, params: dict[str, Any], *args: Any) -> None:
        from flax import nnx

        def rest_of(module: Any) -> dict[str, Any]:
            other = nnx.split(module, nnx.Param, ...)[2]
            return {".".join(map(str, path)): raw(variable.get_value()) for path, variable in nnx.to_flat_state(other)}

        module = self._merged(params)
        before = rest_of(module)
        module(*self.example(args))
        changed = [name for name, value in rest_of(module).items() if not np.array_equal(before[name], value)]
        if changed:
            self.refuse_state(f"{changed[0]!r}")


class EquinoxAdapter(JaxAdapter):
    """``equinox``: the module is a tree, its floating-point arrays are the parameters."""

    def _named(self) -> tuple[dict[str, Any], Any, Any]:
        import equinox as eqx

        arrays, static = eqx.partition(self.module, eqx.is_inexact_array)
        found, shape = jax.tree_util.tree_flatten_with_path(arrays)
        return {".".join(key_name(key) for key in path): leaf for path, leaf in found}, shape, static

    def initial(self, *args: Any) -> dict[str, np.ndarray]:
        return as_numpy(self._named()[0])

    def run(self, params: dict[str, Any], *args: Any) -> Any:
        import equinox as eqx

        known, shape, static = self._named()
        arrays = jax.tree_util.tree_unflatten(shape, [params[name] for name in known])
        return self.mapped(eqx.combine(arrays, static))(*args)

    def check_stateless(self, params: dict[str, Any], *args: Any) -> None:
        import equinox as eqx

        parts = jax.tree.leaves(self.module, is_leaf=lambda part: isinstance(part, eqx.nn.StateIndex))
        if any(isinstance(part, eqx.nn.StateIndex) for part in parts):
            self.refuse_state("its equinox state")


def key_name(key: Any) -> str:
    """One part of a path through a JAX tree, as a name."""
    match key:
        case jax.tree_util.GetAttrKey(name=name):
            return str(name)
        case jax.tree_util.SequenceKey(idx=index):
            return str(index)
        case jax.tree_util.DictKey(key=name):
            return str(name)
    return str(key).strip(".[]")


def raw(value: Any) -> np.ndarray:
    """An array's numbers, those behind a random key too."""
    return np.asarray(jax.random.key_data(value) if jnp.issubdtype(value.dtype, jax.dtypes.prng_key) else value)


def as_numpy(params: dict[str, Any]) -> dict[str, np.ndarray]:
    """The parameters as NumPy arrays; refuses what is not float32."""
    for name, value in params.items():
        if value.dtype != jnp.float32:
            raise ConfigError(f"parameter {name!r} is {value.dtype}; float32 was expected.")
    return {name: np.array(value) for name, value in params.items()}
