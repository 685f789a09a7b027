"""Parts by name: Starling's own, those that installed packages offer, and those that a program registers.

    ALGORITHMS = Registry("algorithm", {"dqn": "starling.algorithms.dqn:DQN"}, Algorithm)
    ALGORITHMS["dqn"]                                                       # imported now
    register("algorithm", "mine", Mine)                                     # by a program

    [project.entry-points."starling.algorithms"]                            # by a package
    mine = "my_package.mine:Mine"

Entry points are read once, when a name is looked up that is not known or all names are asked for. Starling's own names
come first and cannot be taken.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from starling.core.errors import PluginError, UnknownNameError
from starling.core.importing import import_path, imported

__all__ = ["KINDS", "Registry", "carried", "register", "registry_of"]

T = TypeVar("T")

KINDS = {  # where the registry of each kind is
    "algorithm": "starling.algorithms",
    "component": "starling.components.specs",
    "environment": "starling.envs.constructing",
    "plan": "starling.experience",
    "formation": "starling.formations.catalogue",
    "executor": "starling.executors",
    "preset": "starling.experiments.presets",
}
_REGISTRIES: dict[str, Registry[Any]] = {}


class _Part(NamedTuple):
    value: Any  # or the ``module:name`` that it is imported from when first looked up
    source: str = ""  # the distribution that offers it or the module that registered it; "" for Starling's own


class Registry(Mapping[str, T]):
    """The parts of one kind. Iteration leaves out what plugins offer and cannot be used; ``problems`` tells why.

    ``expected`` is the type of the parts, or of which they are subclasses; ``read`` makes one of what was given.
    """

    def __init__(
        self, kind: str, own: Mapping[str, Any], expected: Any, read: Callable[[Any], Any] = lambda value: value
    ) -> None:
        self.kind, self._expected, self._read = kind, expected, read
        self._parts = {name: _Part(value) for name, value in own.items()}
        self._loaded: dict[str, T] = {}
        _REGISTRIES[kind] = self

    def __getitem__(self, name: str) -> T:
        if name not in self._loaded:
            self._loaded[name] = self._load(name, self._find(name))
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._parts or name in self._offers

    def __iter__(self) -> Iterator[str]:
        offered = [name for name in self._offers if name not in self._parts and not self._problem(name)]
        return iter([*self._parts, *offered])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def require(self, name: str) -> None:
        """Refuse a name that is not known."""
        if name not in self:
            raise UnknownNameError(self.kind, name, self)

    def source(self, name: str) -> str:
        """The distribution, or the module, that a part comes from; "" for Starling's own."""
        return self._find(name).source

    @property
    def problems(self) -> list[str]:
        """Why some of what plugins offer cannot be used."""
        return [problem for name in self._offers if (problem := self._problem(name))]

    def add(self, name: str, value: Any) -> None:
        """Make ``value``, or what the text ``module:name`` says, known as ``name``; the same module may do so again."""
        source = value.partition(":")[0] if isinstance(value, str) else getattr(value, "__module__", "this program")
        if name in self._parts and self._parts[name].source != source:
            raise PluginError(f"{self._called(name, self._parts[name])} is there already; register another name.")
        part = _Part(value, source)
        if not isinstance(value, str):
            self._load(name, part)
        self._parts[name] = part
        self._loaded.pop(name, None)

    def carried(self) -> list[tuple[str, str, str]]:
        """See the function of this name."""
        found = [(name, self._find(name)) for name in self._loaded]
        foreign = [(name, part.value) for name, part in found if part.source]
        return [(self.kind, name, each if isinstance(each, str) else import_path(each)) for name, each in foreign]

    @cached_property
    def _offers(self) -> dict[str, list[_Part]]:
        """What installed distributions offer."""
        from importlib.metadata import entry_points

        offers: dict[str, list[_Part]] = {}
        for point in entry_points(group=f"starling.{self.kind}s"):
            source = point.dist.name if point.dist is not None else point.module
            offers.setdefault(point.name, []).append(_Part(f"{point.module}:{point.attr}", source))
        return offers

    def _find(self, name: str) -> _Part:
        if name in self._parts:
            return self._parts[name]
        offers = self._offers.get(name, [])
        if len(offers) > 1:
            sources = " and ".join(offer.source for offer in offers)
            raise PluginError(f"the {self.kind} {name!r} is offered by {sources}; uninstall all but one of them.")
        if not offers:
            raise UnknownNameError(self.kind, name, self)
        return offers[0]

    def _load(self, name: str, part: _Part) -> T:
        try:
            found = self._read(imported(part.value) if isinstance(part.value, str) else part.value)
        except Exception as error:  # the plugin's own code: it may raise anything
            where = f" ({part.value})" if isinstance(part.value, str) else ""
            said = f"{type(error).__name__}: {error}"
            raise PluginError(f"{self._called(name, part)}{where} cannot be loaded: {said}") from error
        if isinstance(found, self._expected) or (isinstance(found, type) and issubclass(found, self._expected)):
            return found  # type: ignore[return-value]
        raise PluginError(f"{self._called(name, part)} is no {self._expected.__name__}: {found!r:.60} arrived.")

    def _problem(self, name: str) -> str:
        known = self._parts.get(name)
        for offer in self._offers[name]:
            if known is not None and known.value != offer.value:
                return f"{self._called(name, offer)} is not used: {known.source or 'Starling'} has one of that name."
        try:
            self[name]
        except PluginError as error:
            return str(error)
        return ""

    def _called(self, name: str, part: _Part) -> str:
        return f"the {self.kind} {name!r} of {part.source or 'Starling'}"


def registry_of(kind: str) -> Registry[Any]:
    """The registry of a kind of part."""
    if kind not in KINDS:
        raise UnknownNameError("kind of part", kind, KINDS)
    importlib.import_module(KINDS[kind])
    return _REGISTRIES[kind]


def register(kind: str, name: str, value: Any) -> None:
    """Make a part known by name, in this program and in the processes that its runs start.

        starling.register("algorithm", "mine", Mine)
        starling.register("formation", "ring", "my_package.formations:RING")

    ``kind`` is algorithm, component, environment, plan, formation, executor or preset; ``value`` the part, or where it
    is imported from. Other processes import it, so there it must be a class or function of a module, or such a text.
    """
    registry_of(kind).add(name, value)


def carried(kinds: Collection[str]) -> list[tuple[str, str, str]]:
    """What another process must ``register`` to know what this one has looked up: kind, name, ``module:name``."""
    return [each for kind, registry in _REGISTRIES.items() if kind in kinds for each in registry.carried()]
