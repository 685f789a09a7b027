"""Taking off the wrappers that only keep books, which cost a call per step each.

``gymnasium.make`` puts OrderEnforcing (step before reset is refused), PassiveEnvChecker (advice on the first calls)
and TimeLimit (counts steps) around an environment. GymEnvs resets before it steps, checks every result, and counts
steps anyway, so it can call what is inside and get the same results. Only these exact classes come off, and only from
the outside: at the first wrapper that could change anything it stops.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

__all__ = ["strip_bookkeeping"]


def strip_bookkeeping(env: gym.Env[Any, Any]) -> tuple[gym.Env[Any, Any], int | None]:
    """The environment inside, and the step at which its episodes are truncated (None: never)."""
    limit: int | None = None
    while type(env) in (TimeLimit, OrderEnforcing, PassiveEnvChecker):
        assert isinstance(env, gym.Wrapper)
        if isinstance(env, TimeLimit):
            steps = env._max_episode_steps
            limit = steps if limit is None else min(limit, steps)
        env = env.env
    return env, limit
