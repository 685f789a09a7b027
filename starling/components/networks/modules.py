"""A framework's own module as a component, on the backend of that framework.

    torso = as_component(torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Tanh()))
    QNetwork(encoder, torso, head)                  # build it for the torch backend

``torch.nn.Module``, ``flax.linen.Module``, ``flax.nnx.Module`` and ``equinox.Module`` are taken. Parameters keep the
module's own names, ``net.0.weight``, and start from the module's own values whatever the seed; those of a linen
module, which has none yet, are made with a fixed key.
"""

from __future__ import annotations

from typing import Any

from starling.backends.modules import Adapter, adapter_of, kind_of
from starling.components.base import Component, api, children
from starling.core.errors import ConfigError
from starling.core.params import Params
from starling.core.trees import items

__all__ = ["Module", "as_component", "check_modules"]


class Module(Component):
    """The arrays of one call go in, the module's result comes out: an array, or a tuple or dict of them."""

    module: Any
    vmap: int = 0  # leading dimensions to map over, for a module that takes one example at a time

    def __post_init__(self) -> None:
        kind_of(self.module)  # refuses what is no module
        if self.vmap < 0:
            raise ConfigError(f"vmap={self.vmap}; it must be 0 (the module takes batches) or above.")

    @property
    def backend(self) -> str:
        """The name of the backend it needs."""
        return kind_of(self.module).backend

    @api
    def __call__(self, p: Params, x: Any, *more: Any) -> Any:
        adapter = adapter_of(self.module, self.vmap)
        if isinstance(p, Params):
            return adapter.call(dict(items(p)), x, *more)
        return adapter.probe(_declared(adapter, p, x, *more), x, *more)


def _declared(adapter: Adapter, scope: Any, *args: Any) -> dict[str, Any]:
    """Ask the scope for every parameter of the module: the graph is being assembled."""
    initial = adapter.initial(*args)
    for path, value in initial.items():
        *outer, name = path.split(".")
        here = scope
        for part in outer:
            here = here[part]
        here.get(name, value.shape, lambda rng, shape, value=value: value.copy())
    return initial


def as_component(module: Any, vmap: int | None = None) -> Module:
    """``module`` as a component; an equinox module takes one example at a time unless ``vmap`` says otherwise."""
    return Module(module, kind_of(module).vmap if vmap is None else vmap)


def check_modules(root: Component, backend: str, path: str = "") -> None:
    """Refuse to build a graph for a backend that one of its modules cannot run on."""
    if isinstance(root, Module) and root.backend != backend:
        what = f"the {kind_of(root.module).title} {type(root.module).__name__}"
        raise ConfigError(
            f"component {path or '(root)'!r} is {what}; it runs on backend {root.backend!r}, and {backend!r} was asked "
            f"for. Set backend: {root.backend}."
        )
    for name, child in children(root):
        check_modules(child, backend, f"{path}.{name}" if path else name)
