"""Starling as a contestant: ``ours.py ALGO``."""

from __future__ import annotations

import sys
from typing import Any

from worker import serve

from starling.core.effects import Pulse
from starling.experiments.config import resolve
from starling.experiments.program import Program
from starling.formations import RoleId, Start

# Everything that costs time is as in sb3.py. DQN is not double, because Stable-Baselines3's is not, and explores at
# a constant rate, because there a random action costs no pass through the network. All but the strict PPO overlap
# acting and learning: they act with the weights of the update before the last, at the same ratio of updates to steps.
PPO: dict[str, Any] = {
    "envs": 8,
    "rollout": 256,
    "epochs": 10,
    "minibatch": 256,
    "hidden": (64, 64),
    "activation": "tanh",
}
SAC: dict[str, Any] = {
    "envs": 1,
    "hidden": (256, 256),
    "batch_size": 256,
    "overlap": True,
    "capacity": 1_000_000,
    "learning_starts": 256,
}
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": ("CartPole-v1", {**PPO, "overlap": True}),
    "ppo-strict": ("CartPole-v1", PPO),
    "dqn": (
        "CartPole-v1",
        {
            "envs": 1,
            "hidden": (256, 256),
            "batch_size": 64,
            "train_every": 4,
            "updates": 1,
            "overlap": True,
            "capacity": 100_000,
            "learning_starts": 1_000,
            "target_period": 250,
            "double": False,
            "epsilon_start": 0.05,
            "epsilon_end": 0.05,
        },
    ),
    "sac": ("Pendulum-v1", {**SAC, "train_every": 1, "updates": 1}),
    "sac-rounds": ("Pendulum-v1", {**SAC, "train_every": 8, "updates": 8}),
}


def main() -> None:
    env, settings = SETTINGS[sys.argv[1]]
    algo = sys.argv[1].partition("-")[0]
    overlap = {"overlap": settings.pop("overlap", False)}
    endless = {"steps": 10**9, "log_every": 10**9, "preset": "none", **overlap}
    program = Program(resolve({"algo": algo, "env": env, **endless, algo: settings}))
    program.prepare()
    code = program.role(RoleId("learner", 0), Start())  # acts and learns
    taken = 0

    def train(steps: int) -> int:
        nonlocal taken
        before = taken
        while taken < before + steps:
            effect = code.send(None)  # nobody wants to stop, and nothing is kept
            if isinstance(effect, Pulse):
                taken = effect.steps
        return taken - before

    serve(train)


if __name__ == "__main__":
    main()
