"""Parts that ``program.py`` registers; in a module, so that the processes of a run can import them."""

from __future__ import annotations

from starling_sample.corridor import Corridor

from starling.algorithms.dqn import DQN
from starling.components.networks.layers import MLP
from starling.executors import ExecutorKind

__all__ = ["PATIENT", "LongCorridor", "MyDQN", "Wide"]

PATIENT = ExecutorKind("processes by another name", "starling.executors.processes:run", takes=("heartbeat",))


class LongCorridor(Corridor):
    """Twice as long."""

    def __init__(self) -> None:
        super().__init__("12")


class MyDQN(DQN):
    """DQN by another name."""

    name = "my_dqn"


class Wide(MLP):
    """One wide layer."""

    sizes: tuple[int, ...] = (32,)
