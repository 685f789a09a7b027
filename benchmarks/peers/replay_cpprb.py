"""cpprb's prioritized replay as a contender: ``replay_cpprb.py prioritized``."""

from __future__ import annotations

from typing import Any

import numpy as np
from cpprb import PrioritizedReplayBuffer
from replay_task import ALPHA, BATCH, ITEMS, Trial, cartpole, cycles, serve


def prioritized() -> Trial:
    fields: dict[str, dict[str, Any]] = {"obs": {"shape": 4}, "action": {"dtype": np.int64}, "reward": {}}
    fields |= {"discount": {}, "next_obs": {"shape": 4}}
    buffer, rng = PrioritizedReplayBuffer(ITEMS, fields, alpha=ALPHA), np.random.default_rng(1)
    buffer.add(**cartpole(ITEMS), priorities=rng.random(ITEMS))
    errors = rng.random((64, BATCH)) + 0.01

    def cycle(i: int) -> None:
        sample = buffer.sample(BATCH, beta=0.4)
        buffer.update_priorities(sample["indexes"], errors[i % 64])

    return lambda: cycles(cycle, 300)


if __name__ == "__main__":
    serve({"prioritized": prioritized})
