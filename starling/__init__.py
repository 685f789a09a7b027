"""Starling: distributed reinforcement learning; one algorithm, any formation.

import starling

result = starling.train("ppo", "CartPole-v1", steps=100_000)
print(result.final_return, result.directory)
"""

from typing import TYPE_CHECKING, Any

__all__ = [
    "Agent",
    "Component",
    "ComponentTest",
    "__version__",
    "api",
    "collect",
    "evaluate",
    "register",
    "resume",
    "train",
]

__version__ = "0.1.0"

_HOMES = {
    "Agent": "starling.experiments.agent",
    "Component": "starling.components.base",
    "ComponentTest": "starling.components.testing",
    "api": "starling.components.base",
    "collect": "starling.experiments.collecting",
    "evaluate": "starling.experiments.trained",
    "register": "starling.core.registry",
    "resume": "starling.experiments.running",
    "train": "starling.experiments.running",
}

if TYPE_CHECKING:
    from starling.components.base import Component, api
    from starling.components.testing import ComponentTest
    from starling.core.registry import register
    from starling.experiments.agent import Agent
    from starling.experiments.collecting import collect
    from starling.experiments.running import resume, train
    from starling.experiments.trained import evaluate


def __getattr__(name: str) -> Any:
    """Public names load what they need when first used: an actor process imports NumPy alone."""
    if name not in _HOMES:
        raise AttributeError(f"module 'starling' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
