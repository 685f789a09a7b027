"""Algorithms: one file each. Adding one is adding its file and its line here."""

from __future__ import annotations

from starling.algorithms.a2c import A2C
from starling.algorithms.base import Algorithm
from starling.algorithms.bc import BC
from starling.algorithms.dqn import DQN
from starling.algorithms.es import ES
from starling.algorithms.impala import Impala
from starling.algorithms.ppo import PPO
from starling.algorithms.r2d2 import R2D2
from starling.algorithms.reinforce import Reinforce
from starling.algorithms.sac import SAC
from starling.core.errors import UnknownNameError

__all__ = [
    "A2C",
    "ALGORITHMS",
    "BC",
    "DQN",
    "ES",
    "PPO",
    "R2D2",
    "SAC",
    "Algorithm",
    "Impala",
    "Reinforce",
    "get_algorithm",
]

ALGORITHMS: dict[str, type[Algorithm]] = {
    "a2c": A2C,
    "bc": BC,
    "dqn": DQN,
    "es": ES,
    "impala": Impala,
    "ppo": PPO,
    "r2d2": R2D2,
    "reinforce": Reinforce,
    "sac": SAC,
}


def get_algorithm(name: str) -> type[Algorithm]:
    """The algorithm called ``name``."""
    if name not in ALGORITHMS:
        raise UnknownNameError("algorithm", name, ALGORITHMS)
    return ALGORITHMS[name]
