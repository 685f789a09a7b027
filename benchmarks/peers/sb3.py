"""Stable-Baselines3 as a contestant: ``sb3.py CONTEST THREADS``; THREADS 0 leaves PyTorch's default."""

from __future__ import annotations

import sys
from typing import Any

import torch
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv
from worker import serve


def model_for(contest: str) -> Any:
    """The model with everything that costs time as in ours.py; the rest is the library's default."""
    algo, _, variant = contest.partition("-")
    count, env = (8, "CartPole-v1") if algo == "ppo" else (1, "CartPole-v1" if algo == "dqn" else "Pendulum-v1")
    envs = make_vec_env(env, n_envs=count, seed=0, vec_env_cls=DummyVecEnv)
    common: dict[str, Any] = {"policy": "MlpPolicy", "env": envs, "device": "cpu", "verbose": 0, "seed": 0}
    if algo == "ppo":
        return PPO(n_steps=256, batch_size=256, n_epochs=10, policy_kwargs={"net_arch": [64, 64]}, **common)
    common["policy_kwargs"] = {"net_arch": [256, 256]}
    if algo == "sac":
        every = 8 if variant == "rounds" else 1
        common |= {"train_freq": every, "gradient_steps": every}
        return SAC(batch_size=256, buffer_size=1_000_000, learning_starts=256, **common)
    return DQN(
        learning_rate=1e-3,
        batch_size=64,
        train_freq=4,
        gradient_steps=1,
        buffer_size=100_000,
        learning_starts=1_000,
        target_update_interval=1_000,  # environment steps: 250 updates
        exploration_initial_eps=0.05,
        exploration_final_eps=0.05,
        **common,
    )


def main() -> None:
    contest, threads = sys.argv[1], int(sys.argv[2])
    if threads:
        torch.set_num_threads(threads)
    model = model_for(contest)

    def train(steps: int) -> int:
        before = model.num_timesteps
        model.learn(steps, log_interval=None, reset_num_timesteps=False)
        return int(model.num_timesteps) - before

    serve(train)


if __name__ == "__main__":
    main()
