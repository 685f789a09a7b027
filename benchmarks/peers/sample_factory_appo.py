"""Sample Factory's APPO on CartPole-v1, until it is ended: its own log tells frames a second."""

from __future__ import annotations

import sys
import tempfile

import gymnasium as gym
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner


def make_env(full_env_name, cfg=None, env_config=None, render_mode=None):
    return gym.make(full_env_name, render_mode=render_mode)


def main(actors: int, envs: int, rollout: int) -> None:
    register_env("CartPole-v1", make_env)
    with tempfile.TemporaryDirectory() as directory:
        arguments = {
            "algo": "APPO", "env": "CartPole-v1", "experiment": "peer", "train_dir": directory, "device": "cpu",
            "num_workers": actors, "num_envs_per_worker": envs, "rollout": rollout, "recurrence": 1,
            "batch_size": actors * envs * rollout, "num_epochs": 1, "use_rnn": False, "worker_num_splits": 2,
            "encoder_mlp_layers": None, "train_for_env_steps": 10**10, "with_wandb": False,
            "serial_mode": False, "async_rl": True,
        }  # fmt: skip
        argv = [f"--{name}={value}" for name, value in arguments.items() if value is not None]
        argv += ["--encoder_mlp_layers", "64", "64"]
        parser, _ = parse_sf_args(argv=argv)
        cfg = parse_full_cfg(parser, argv)
        cfg, runner = make_runner(cfg)
        runner.init()
        runner.run()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
