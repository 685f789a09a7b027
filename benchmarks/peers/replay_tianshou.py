"""Tianshou's prioritized replay as a contender: ``replay_tianshou.py prioritized``."""

from __future__ import annotations

import numpy as np
from replay_task import ALPHA, BATCH, ITEMS, Trial, cartpole, cycles, serve
from tianshou.data import Batch, PrioritizedReplayBuffer


def prioritized() -> Trial:
    data, rng = cartpole(ITEMS), np.random.default_rng(1)
    buffer = PrioritizedReplayBuffer(ITEMS, alpha=ALPHA, beta=0.4)
    for i in range(ITEMS):
        step = {"obs": data["obs"][i], "act": data["action"][i], "rew": data["reward"][i]}
        end = {"terminated": False, "truncated": False, "obs_next": data["next_obs"][i], "info": {}}
        buffer.add(Batch(**step, **end))
    buffer.update_weight(np.arange(ITEMS), rng.random(ITEMS))
    errors = rng.random((64, BATCH)) + 0.01

    def cycle(i: int) -> None:
        _, indices = buffer.sample(BATCH)
        buffer.update_weight(indices, errors[i % 64])

    return lambda: cycles(cycle, 300)


if __name__ == "__main__":
    serve({"prioritized": prioritized})
