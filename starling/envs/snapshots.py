"""Where a vectorised environment is: the arrays, numbers and generators among its attributes.

gymnasium has no way to ask an environment for its state. But one that computes all its rows at once usually keeps them
in arrays of its own, and its randomness in ``np_random``. Whether that is all there is gets tried out: a second
environment put where the first one was must go on like it, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from starling.core.random import stream
from starling.core.trees import Tree
from starling.envs.actions import ActionCodec
from starling.envs.rows import same_bits

__all__ = ["can_be_put_back", "put_back", "snapshot"]

AnyVectorEnv = VectorEnv[Any, Any, Any]
GENERATOR = "generator"


def snapshot(env: AnyVectorEnv) -> dict[str, Any]:
    """The attributes of ``env`` that a checkpoint can hold, copied."""
    found: dict[str, Any] = {}
    for name, value in vars(env).items():
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            found[name] = value.copy()
        elif isinstance(value, np.random.Generator):
            found[name] = {GENERATOR: value.bit_generator.state}
        elif value is None or isinstance(value, (bool, int, float, str)):
            found[name] = value
    return found


def put_back(env: AnyVectorEnv, saved: dict[str, Any]) -> None:
    """Give ``env``, which has been reset before, the attributes of a ``snapshot``."""
    for name, value in saved.items():
        if isinstance(value, dict):
            getattr(env, name).bit_generator.state = value[GENERATOR]
        else:
            setattr(env, name, value.copy() if isinstance(value, np.ndarray) else value)


def can_be_put_back(make_env: Callable[[], AnyVectorEnv], seed: int, steps: int = 64) -> bool:
    """Whether a snapshot is enough to go on exactly, tried out with two environments that are closed again."""
    first, second = make_env(), make_env()
    try:
        rng = stream(seed, "probe", "vector")
        codec = ActionCodec(first.single_action_space, first.num_envs)
        space = codec.space.ranked(batch=True)
        actions = [codec.batch(space.sample(rng, (first.num_envs,))) for _ in range(2 * steps)]
        first.reset(seed=1)
        second.reset(seed=2)
        _play(first, actions[:steps])
        put_back(second, snapshot(first))
        # Including new episodes: their randomness must have come along too.
        return same_bits(*([_play(env, actions[steps:]), np.array(env.reset()[0])] for env in (first, second)))
    except Exception:  # whatever goes wrong here, the environment cannot be relied on
        return False
    finally:
        first.close()
        second.close()


def _play(env: AnyVectorEnv, actions: list[Any]) -> Tree:
    results = [env.step(action)[:4] for action in actions]
    return [[np.array(part) for part in result] for result in results]
