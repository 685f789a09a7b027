"""Placement: the devices that each role of a formation computes on.

    placement = Placement(form("sync"), {"learner": ("cuda:0", "cuda:1")})
    placement.of(RoleId("learner", 0))                       # what it learns on, and what it acts on
    placement.environment(RoleId("actor", 0), os.environ)    # what keeps its process to the processor

Roles of one kind share its devices: two learners get every second of them, and where there are fewer devices than
roles, some share one. Roles that were given none compute on the processor, but for those that end the run: while nobody
was given an accelerator, these have the default device of their backend.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from starling.backends.devices import environment_for, renumbered
from starling.core.errors import UnknownNameError
from starling.formations.base import Formation, RoleId

__all__ = ["Placement"]

PROCESSOR = ("cpu:0",)


@dataclass(frozen=True)
class Placement:
    """See the top of this file."""

    formation: Formation
    devices: Mapping[str, tuple[str, ...]]  # by what ``Roles`` calls them
    apart: bool = False  # whether a process sees its role's devices alone, numbered from 0

    def __post_init__(self) -> None:
        for kind in self.devices:
            if kind not in self.formation.computing:
                raise UnknownNameError("role with devices", kind, self.formation.computing, self.formation.name)

    def of(self, role: RoleId) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What a role learns on, and what it acts on; empty: its backend's default."""
        learns, acts = self._asked(role)
        if self.apart:
            names = dict(zip(seen := list(dict.fromkeys(learns + acts)), renumbered(seen)))
            learns, acts = (tuple(names[device] for device in part) for part in (learns, acts))
        return learns, acts

    def environment(self, role: RoleId, environment: Mapping[str, str]) -> dict[str, str]:
        """The variables that keep a role's process to its own devices, where ``environment`` holds those of now."""
        learns, acts = self._asked(role)
        return environment_for(list(dict.fromkeys(learns + acts)), environment)

    def _asked(self, role: RoleId) -> tuple[tuple[str, ...], tuple[str, ...]]:
        roles = self.formation.of_kind(role.kind)
        accelerated = any(not device.startswith("cpu:") for given in self.devices.values() for device in given)
        default = () if role.kind == self.formation.ends and not accelerated else PROCESSOR

        def share(kind: str) -> tuple[str, ...]:
            given = self.devices.get(kind) or default
            return given[role.index % len(given) :: roles.count] if given else ()

        return share(roles.learns), share(roles.acts)
