"""Algorithms: one file each. Adding one is adding its file and its line here."""

from __future__ import annotations

from starling.algorithms.base import Algorithm
from starling.core.registry import Registry

__all__ = ["ALGORITHMS", "Algorithm"]

ALGORITHMS: Registry[type[Algorithm]] = Registry(
    "algorithm",
    {
        "a2c": "starling.algorithms.a2c:A2C",
        "bc": "starling.algorithms.bc:BC",
        "dqn": "starling.algorithms.dqn:DQN",
        "es": "starling.algorithms.es:ES",
        "impala": "starling.algorithms.impala:Impala",
        "ppo": "starling.algorithms.ppo:PPO",
        "r2d2": "starling.algorithms.r2d2:R2D2",
        "reinforce": "starling.algorithms.reinforce:Reinforce",
        "sac": "starling.algorithms.sac:SAC",
    },
    Algorithm,
)
