"""Starling as a contestant: ``ours.py ALGO``."""

from __future__ import annotations

import sys
from typing import Any

from starling.experiments.training import Training
from worker import serve

from starling.experiments.config import resolve

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
    training = Training(resolve({"algo": algo, "env": env, "preset": "none", algo: settings}))

    def train(steps: int) -> int:
        before = training.steps
        while training.steps < before + steps:
            training.round()
        training.learner.weights()  # waits for updates that are still under way
        return training.steps - before

    serve(train)


if __name__ == "__main__":
    main()
