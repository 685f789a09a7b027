"""A framework's own module as a component, on the backend of that framework.

    torso = as_component(torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Tanh()))
    QNetwork(encoder, torso, head)                  # build it for the torch backend, to learn and to act

``torch.nn.Module``, ``flax.linen.Module``, ``flax.nnx.Module`` and ``equinox.Module`` are taken. Parameters keep the
module's own names, ``net.0.weight``, and start from the module's own values whatever the seed; those of a linen
module, which has none yet, are made with a fixed key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from starling.backends.modules import Adapter, adapter_of, kind_of
from starling.components.base import Component, api, children
from starling.core.errors import ConfigError
from starling.core.params import Params
from starling.core.trees import items

__all__ = ["Module", "as_component", "check_modules", "required_backend"]


class Module(Component):
    """The arrays of one call go in, the module's result comes out: an array, or a tuple or dict of them."""

    module: Any
    vmap: int = 0  # leading dimensions to map over, for a module that takes one example at a time
    spec: Mapping[str, Any] | None = None  # what it was made from, where a configuration says so

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


def as_component(module: Any, vmap: int | None = None, spec: Mapping[str, Any] | None = None) -> Module:
    """``module`` as a component; an equinox module takes one example at a time unless ``vmap`` says otherwise."""
    return Module(module, kind_of(module).vmap if vmap is None else vmap, spec)


def check_modules(root: Component, backend: str) -> None:
    """Refuse to build a graph for a backend that one of its modules cannot run on."""
    for path, module in _modules(root):
        if module.backend != backend:
            raise ConfigError(
                f"component {path or '(root)'!r} is {_title(module)}; it runs on backend {module.backend!r}, and this "
                f"graph is for {backend!r}. Both who learns and who acts run it: set backend and act_backend to "
                f"{module.backend}."
            )


def required_backend(root: Component) -> str | None:
    """The backend that the modules in ``root`` run on; None where there are none. Refuses modules that differ."""
    found = {module.backend: (path, module) for path, module in _modules(root)}
    if len(found) > 1:
        (path, module), (other_path, other), *_ = found.values()
        raise ConfigError(
            f"component {path!r} is {_title(module)} and {other_path!r} is {_title(other)}; one graph runs on one "
            "backend. Use modules of one framework."
        )
    return next(iter(found), None)


def _modules(root: Component, path: str = "") -> Iterator[tuple[str, Module]]:
    if isinstance(root, Module):
        yield path, root
    for name, child in children(root):
        yield from _modules(child, f"{path}.{name}" if path else name)


def _title(module: Module) -> str:
    return f"the {kind_of(module.module).title} {type(module.module).__name__}"
