"""Whether an environment repeats itself under the same seed and actions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from starling.core.random import stream
from starling.core.trees import items
from starling.envs.actions import ActionCodec

__all__ = ["first_difference", "is_deterministic"]


def is_deterministic(make_env: Callable[[], gym.Env[Any, Any]], seed: int = 0, steps: int = 200) -> bool:
    """Whether two fresh environments give the same results, bit for bit, from the same seed and actions."""
    return first_difference(make_env, seed, steps) is None


def first_difference(make_env: Callable[[], gym.Env[Any, Any]], seed: int, steps: int) -> str | None:
    """Where two fresh environments first differ, in words, or None."""
    pairs = zip(_trajectory(make_env(), seed, steps), _trajectory(make_env(), seed, steps))
    for step, (left, right) in enumerate(pairs):
        for (what, a), (_, b) in zip(items(left), items(right)):
            if np.asarray(a).tobytes() != np.asarray(b).tobytes():
                return f"step {step}: {what} was {a!r:.80} in one run and {b!r:.80} in the other"
    return None


def _trajectory(env: gym.Env[Any, Any], seed: int, steps: int) -> Iterator[dict[str, Any]]:
    """The results of random actions; every episode begins with a seed of its own."""
    rng = stream(seed, "probe")
    codec = ActionCodec(env.action_space, 1)
    space = codec.space.ranked(batch=True)
    obs, _ = env.reset(seed=int(rng.integers(2**31)))
    yield {"observation": obs}
    for _ in range(steps):
        obs, reward, terminated, truncated, _ = env.step(codec.rows(space.sample(rng, (1,)))[0])
        yield {"observation": obs, "reward": reward, "terminated": terminated, "truncated": truncated}
        if terminated or truncated:
            obs, _ = env.reset(seed=int(rng.integers(2**31)))
            yield {"observation": obs}
    env.close()
