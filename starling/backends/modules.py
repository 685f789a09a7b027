"""Modules of other frameworks, run with parameters handed in: ``torch.nn``, ``flax.linen``, ``flax.nnx``, ``equinox``.

Nothing here keeps state: what a module would change while it runs (the averages of a batch norm, a generator of
dropout) is refused when the graph is assembled. What a module holds and does not change, such as the buffers of a
module in ``eval`` mode or parameters that ask for no gradient, stays a constant of the module.
"""

from __future__ import annotations

import importlib
import importlib.util
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from starling.backends.base import get_backend
from starling.backends.probe import probe, sources_of, spend_flops
from starling.backends.tracing import Tracer, opaque
from starling.core.errors import ConfigError, MissingExtraError
from starling.core.trees import leaves, map_leaves

__all__ = ["Adapter", "ModuleKind", "adapter_of", "kind_of", "kind_of_class"]


@dataclass(frozen=True)
class ModuleKind:
    """A framework's kind of module."""

    title: str
    package: str
    backend: str
    extra: str  # what of this project installs it
    adapter: str  # file and class
    vmap: int = 0  # leading dimensions its modules do not take by themselves


# By the module that defines the base class: a user's module is recognised without importing any framework.
_KINDS = {
    "torch.nn.modules.module": ModuleKind("PyTorch module", "torch", "torch", "torch", "torch_modules:TorchAdapter"),
    "flax.linen.module": ModuleKind("flax.linen module", "flax", "jax", "dev", "jax_modules:LinenAdapter"),
    "flax.nnx.module": ModuleKind("flax.nnx module", "flax", "jax", "dev", "jax_modules:NnxAdapter"),
    "equinox._module": ModuleKind("equinox module", "equinox", "jax", "dev", "jax_modules:EquinoxAdapter", vmap=1),
}


def kind_of_class(cls: type) -> ModuleKind | None:
    """What kind of module the instances of a class are; None where they are none."""
    for base in cls.__mro__:
        for place, kind in _KINDS.items():
            if base.__name__ == "Module" and f"{base.__module__}.".startswith(f"{place}."):
                return kind
    return None


def kind_of(module: Any) -> ModuleKind:
    """What kind of module it is; refuses what is none, and one whose framework is not installed."""
    kind = kind_of_class(type(module))
    if kind is not None:
        if importlib.util.find_spec(kind.package) is None:
            raise MissingExtraError(kind.package, kind.extra)
        return kind
    raise ConfigError(
        f"{type(module).__name__} arrived; expected an instance of torch.nn.Module, flax.linen.Module, "
        f"flax.nnx.Module or equinox.Module."
    )


class Adapter(ABC):
    """A module with its parameters outside: by name, dots between the parts."""

    def __init__(self, module: Any, vmap: int) -> None:
        self.module, self.vmap, self.kind = module, vmap, kind_of(module)

    @abstractmethod
    def initial(self, *args: Any) -> dict[str, np.ndarray]:
        """The parameters the module starts with; ``args`` are NumPy examples of its inputs."""

    @abstractmethod
    def run(self, params: dict[str, Any], *args: Any) -> Any:
        """The module's result; everything is of the framework."""

    @abstractmethod
    def check_stateless(self, params: dict[str, Any], *args: Any) -> None:
        """Refuse a module that changes while it runs."""

    @abstractmethod
    def flops(self, params: dict[str, Any], *args: Any) -> float:
        """Floating-point operations of one run."""

    def call(self, params: dict[str, Any], *args: Any) -> Any:
        """``run`` in a built graph; refuses arrays of another framework."""
        self._check_arrays(args)
        return opaque(lambda given, *values: self.run(given, *values), params, *args)

    def probe(self, params: dict[str, np.ndarray], *args: Any) -> Any:
        """``run`` while a graph is assembled: NumPy probes come in and go out."""
        backend = get_backend(self.kind.backend)
        given, values = backend.from_numpy(map_leaves(np.asarray, (params, args)))
        self.check_stateless(given, *values)
        result = backend.to_numpy(self.run(given, *values))
        spend_flops(self.flops(given, *values))
        return probe(result, sources_of(args))

    def _check_arrays(self, args: tuple[Any, ...]) -> None:
        for leaf in leaves(args):
            value = leaf.value if isinstance(leaf, Tracer) else leaf
            if isinstance(value, np.ndarray) and self.kind.backend != "numpy":
                raise ConfigError(
                    f"the {self.kind.title} {type(self.module).__name__} was given a NumPy array; it runs on backend "
                    f"{self.kind.backend!r}. Call it through a graph that is built for it."
                )

    def refuse_state(self, what: str) -> None:
        raise ConfigError(
            f"the {self.kind.title} {type(self.module).__name__} changes {what} while it runs; a component "
            f"keeps nothing but its parameters. Put it in evaluation mode, or use a layer "
            f"without running state: a layer norm."
        )


def adapter_of(module: Any, vmap: int = 0) -> Adapter:
    """What runs ``module``; its framework is imported now."""
    kind = kind_of(module)
    file, _, name = kind.adapter.partition(":")
    adapter: Adapter = getattr(importlib.import_module(f"starling.backends.{file}"), name)(module, vmap)
    return adapter
