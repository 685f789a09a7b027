"""Components: units of computation with declared APIs.

    class Linear(Component):
        size: int

        @api(x="* I")
        def __call__(self, p, x):
            return x @ p.get("w", (x.shape[-1], self.size), lecun) + p.get("b", (self.size,), zeros)

*Compose*: a component is a frozen value; the fields that hold components are its sub-components, and a
sub-component's parameters live in the scope of its field's name: ``self.torso(p.torso, x)``.
*Assemble* and *build* are in ``components.graph``.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform, overload

__all__ = ["Component", "api", "apis", "children", "expectations", "replace_children"]

Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass_transform(frozen_default=True)
class Component:
    """Base of all components; a subclass is a frozen dataclass of its annotated fields."""

    needs: ClassVar[str] = ""  # what callers keep or draw for it: memory, statistics, returns, noise; "" for a layer
    hands_on: ClassVar[bool] = False  # whether its parts are called with its own input, so that their needs are its

    if TYPE_CHECKING:  # a field typed Component may be called and has whatever APIs its value has

        def __call__(self, p: Any, *args: Any) -> Any: ...

        def __getattr__(self, name: str) -> Any: ...

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True, eq=False)(cls)


@overload
def api(method: Method) -> Method: ...
@overload
def api(**expects: str) -> Callable[[Method], Method]: ...
def api(method: Any = None, **expects: str) -> Any:
    """Mark a method as part of a component's API; it stays the plain function it is.

    ``expects`` says what shape an argument must have, checked while the graph is assembled: ``x="* H W C"`` any
    leading dimensions and then three, ``x="int *"`` whole numbers, ``x="B {size}"`` a field of the component.
    """

    def mark(method: Any) -> Any:
        method.__api__ = dict(expects)
        return method

    return mark(method) if method is not None else mark


def apis(component: Component | type[Component]) -> list[str]:
    """The names of a component's API methods, in the order of their definition, inherited ones first."""
    cls = component if isinstance(component, type) else type(component)
    names: dict[str, None] = {}
    for base in reversed(cls.__mro__):
        for name, member in vars(base).items():
            if inspect.isfunction(member) and hasattr(member, "__api__"):
                names[name] = None
    return list(names)


def expectations(component: Component, name: str) -> dict[str, str]:
    """What the API ``name`` expects of its arguments, with the component's fields filled in."""
    fields = {f.name: getattr(component, f.name) for f in dataclasses.fields(component)}  # type: ignore[arg-type]
    return {argument: text.format(**fields) for argument, text in getattr(component, name).__api__.items()}


def children(component: Component) -> Iterator[tuple[str, Component]]:
    """Yield (scope name, sub-component): a field's name, with ``_i`` or ``_key`` for one of several."""
    for field in dataclasses.fields(component):  # type: ignore[arg-type]
        value = getattr(component, field.name)
        if isinstance(value, Component):
            yield field.name, value
        elif isinstance(value, tuple):
            yield from ((f"{field.name}_{i}", v) for i, v in enumerate(value) if isinstance(v, Component))
        elif isinstance(value, Mapping):
            yield from ((f"{field.name}_{k}", v) for k, v in value.items() if isinstance(v, Component))


def replace_children(component: Component, change: Callable[[str, Component], Component]) -> Component:
    """The component with each sub-component replaced by ``change(scope name, sub-component)``."""
    changed: dict[str, Any] = {}
    for field in dataclasses.fields(component):  # type: ignore[arg-type]
        value, name = getattr(component, field.name), field.name
        if isinstance(value, Component):
            changed[name] = change(name, value)
        elif isinstance(value, tuple) and any(isinstance(v, Component) for v in value):
            changed[name] = tuple(
                change(f"{name}_{i}", v) if isinstance(v, Component) else v for i, v in enumerate(value)
            )
        elif isinstance(value, Mapping) and any(isinstance(v, Component) for v in value.values()):
            changed[name] = {k: change(f"{name}_{k}", v) if isinstance(v, Component) else v for k, v in value.items()}
    return dataclasses.replace(component, **changed) if changed else component  # type: ignore[type-var]
