"""RLlib's IMPALA on CartPole-v1 for so many seconds: prints environment steps a second as JSON."""

from __future__ import annotations

import json
import logging
import sys
import time

import ray
from ray.rllib.algorithms.impala import IMPALAConfig

WARM_UP = 5.0


def sampled(result: dict) -> int:
    return int(result["num_env_steps_sampled_lifetime"])


def main(seconds: float, actors: int, envs: int, rollout: int) -> None:
    ray.init(num_cpus=actors + 1, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
    config = (
        IMPALAConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=actors, num_envs_per_env_runner=envs, rollout_fragment_length=rollout)
        .learners(num_learners=0)
        .rl_module(model_config={"fcnet_hiddens": [64, 64], "fcnet_activation": "tanh", "vf_share_layers": False})
        .training(train_batch_size_per_learner=actors * envs * rollout, lr=1e-3)
        .reporting(min_time_s_per_iteration=1)
    )
    algorithm = config.build_algo()
    until = time.perf_counter() + WARM_UP
    result = algorithm.train()
    while time.perf_counter() < until or not sampled(result):
        result = algorithm.train()
    begun, before = time.perf_counter(), sampled(result)
    while time.perf_counter() < begun + seconds:
        result = algorithm.train()
    speed = (sampled(result) - before) / (time.perf_counter() - begun)
    print(json.dumps({"steps_per_second": speed}))
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    main(float(sys.argv[1]), *map(int, sys.argv[2:5]))
