"""Faults of a simulation: how fast roles and messages are, and what goes wrong. All of it follows from a seed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from starling.core.effects import Effect, Publish, Put, Reply
from starling.core.errors import ConfigError, UnknownNameError
from starling.core.random import stream
from starling.formations import Formation, RoleId

__all__ = ["FaultSchedule", "SimulatedFaults"]

WORK = {"actor": 1.0, "worker": 1.2, "learner": 0.2, "buffer": 0.01, "server": 0.02, "inference": 0.005}
MOMENT = 1e-4  # seconds between effects that have no work before them


@dataclass(frozen=True, kw_only=True)
class SimulatedFaults:
    """Seconds are virtual. ``work`` is what a role of each kind takes for a chunk, an update or an answer."""

    seed: int = 0
    work: Mapping[str, float] = field(default_factory=dict)
    spread: float = 0.3  # of speeds, between roles and from one piece of work to the next (standard deviation of logs)
    latency: float = 0.01  # of a message
    jitter: float = 0.5  # spread of the latency
    loss: float = 0.0  # chance that a message, or its acknowledgement, is lost and sent again
    resend: float = 0.1  # after so long
    crashes: float = 0.0  # of each role, per second
    freezes: float = 0.0  # of each role, per second
    frozen: float = 5.0  # how long a freeze lasts
    restart: float = 1.0  # how long it takes to start a role again
    mortal: tuple[str, ...] | None = None  # kinds of roles that crash and freeze; None: all

    def __post_init__(self) -> None:
        for name in ("spread", "latency", "jitter", "resend", "crashes", "freezes", "frozen", "restart"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise ConfigError(f"simulation.{name}={getattr(self, name)}; it must be 0 or above.")
        if not 0 <= self.loss < 1:
            raise ConfigError(f"simulation.loss={self.loss}; a chance below 1 was expected.")

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> SimulatedFaults:
        """From a run's ``simulation`` settings."""
        known = [each.name for each in fields(cls)]
        for name in settings:
            if name not in known:
                raise UnknownNameError("setting", name, known, "simulation")
        return cls(**settings)


class FaultSchedule:
    """Draws faults and delays; each role and each lane has a stream of its own, so one does not disturb another."""

    def __init__(self, faults: SimulatedFaults, formation: Formation) -> None:
        self.faults = faults
        self._requests = {edge.answers for edge in formation.edges}
        self._streams: dict[tuple[Any, ...], np.random.Generator] = {}

    def _stream(self, *names: Any) -> np.random.Generator:
        if names not in self._streams:
            self._streams[names] = stream(self.faults.seed, "faults", *names)
        return self._streams[names]

    def _spread(self, rng: np.random.Generator, by: float) -> float:
        return float(np.exp(by * rng.standard_normal() - 0.5 * by * by))  # with mean 1

    def work(self, role: RoleId, effect: Effect) -> float:
        """How long the role worked before it came to this effect."""
        if not isinstance(effect, (Put, Reply, Publish)) or effect.edge in self._requests:
            return MOMENT
        usual = self.faults.work.get(role.kind, WORK.get(role.kind, MOMENT))
        own = self._spread(stream(self.faults.seed, "speed", str(role)), self.faults.spread)
        return usual * own * self._spread(self._stream("work", str(role)), self.faults.spread)

    def latency(self, edge: str, source: int, target: int) -> float:
        rng = self._stream("latency", edge, source, target)
        return self.faults.latency * self._spread(rng, self.faults.jitter)

    def loses(self, edge: str, source: int, target: int) -> bool:
        return bool(self.faults.loss and self._stream("loss", edge, source, target).random() < self.faults.loss)

    def next_fault(self, role: RoleId, kind: str) -> float | None:
        """Seconds until the role's next crash or freeze; None where there is none."""
        rate = self.faults.crashes if kind == "crash" else self.faults.freezes
        if not rate or (self.faults.mortal is not None and role.kind not in self.faults.mortal):
            return None
        return float(self._stream(kind, str(role)).exponential(1 / rate))
