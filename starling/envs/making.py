"""``make``: from an id, a constructor or a vectorised environment to Envs."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, overload

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import VectorEnv

from starling.core.errors import ConfigError, EnvError
from starling.core.machine import processors
from starling.envs.constructing import (
    EnvLike,
    adapter_of,
    constructor_of,
    name_of,
    single_constructor,
    takes_num_envs,
)
from starling.envs.gym_envs import GymEnvs
from starling.envs.pool_envs import AsyncPoolEnvs, PoolEnvs, Recipe, require_importable
from starling.envs.protocol import AsyncEnvs, Envs
from starling.envs.snapshots import can_be_put_back
from starling.envs.step_note import StepNote
from starling.envs.stripping import strip_bookkeeping
from starling.envs.tolerant import Tolerance
from starling.envs.vector_envs import VectorEnvs

__all__ = ["WORTH_A_VECTOR", "make", "own_vector"]

LIMIT = "max_episode_steps"
WORTH_A_VECTOR = 8  # environments from which stepping them as arrays is faster than one after the other


@overload
def make(
    env: EnvLike,
    count: int,
    seed: int,
    *,
    tolerance: Tolerance | None = ...,
    extras: Sequence[str] = ...,
    workers: int = ...,
    step_note: Path | None = ...,
    asynchronous: Literal[False] = ...,
    **kwargs: Any,
) -> Envs: ...


@overload
def make(
    env: EnvLike,
    count: int,
    seed: int,
    *,
    tolerance: Tolerance | None = ...,
    extras: Sequence[str] = ...,
    workers: int = ...,
    step_note: Path | None = ...,
    asynchronous: Literal[True],
    batch: int | None = ...,
    **kwargs: Any,
) -> AsyncEnvs: ...


def make(
    env: EnvLike,
    count: int,
    seed: int,
    *,
    tolerance: Tolerance | None = None,
    extras: Sequence[str] = (),
    workers: int = 0,
    step_note: Path | None = None,
    asynchronous: bool = False,
    batch: int | None = None,
    **kwargs: Any,
) -> Envs | AsyncEnvs:
    """``count`` environments that step together; or, ``asynchronous``, of which those that are ready do.

    ``env`` is an id ("CartPole-v1", "envpool:Pong-v5", "my_package:MyEnv-v0", a registered name), a constructor of a
    gymnasium environment or of a VectorEnv, or a VectorEnv. A constructor that takes ``num_envs`` is one of a VectorEnv
    and is called with ``num_envs=count``; another may return a VectorEnv of exactly ``count`` environments. ``kwargs``
    go to the constructor; ``max_episode_steps`` truncates.

    With ``tolerance``, environments that are stepped one by one are made anew when they crash or hang. ``extras`` names
    entries of info that every step is to carry (``Step.extras``). ``workers`` processes, from two on, share the
    environments, with the same results as stepping them one by one; this one is the first of them. ``asynchronous``
    gives AsyncEnvs, which serve ``batch`` rows at a time (half of them by default), from EnvPool's threads or from
    ``workers`` processes beside this one (one per processor by default).

    In the file ``step_note`` this process keeps in which of the environments that it steps one by one it is: whoever
    finds it killed learns that from ``read_note``.
    """
    _require_numbers(count, workers, asynchronous, batch)
    rows = max(1, count // 2) if batch is None else batch
    name = name_of(env)
    if (found := adapter_of(env)) is not None:
        adapter, task = found
        if workers:
            raise ConfigError(f"workers={workers} has no effect on {name}, which steps its rows itself; leave it out.")
        if not asynchronous:
            return adapter(task, count, seed, extras=extras, **kwargs)
        if adapter.asynchronous is None:
            raise ConfigError(
                f"{name} has no asynchronous form; EnvPool's environments have one, and those that are stepped one by "
                "one. Leave asynchronous out."
            )
        return adapter.asynchronous(task, count, rows, seed, extras=extras, **kwargs)
    pooled = workers > 1 or asynchronous
    if isinstance(env, VectorEnv):
        if kwargs:
            raise ConfigError(f"{name} is already made; {', '.join(sorted(kwargs))} cannot be given.")
        return _vector(env, count, seed, name, extras, pooled)
    if pooled:
        require_importable(env, kwargs)
    sized = takes_num_envs(env)
    ready = constructor_of(env, **(kwargs | {"num_envs": count} if sized else kwargs))()
    if isinstance(ready, VectorEnv):
        return _vector(ready, count, seed, name, extras, pooled)
    if sized:
        raise EnvError(
            f"{name} takes num_envs, was called with num_envs={count} and returned {type(ready).__name__}; such a "
            "constructor must return a gymnasium.vector.VectorEnv. Rename the argument if it makes one environment."
        )
    if pooled:
        example = GymEnvs(single_constructor(env, tolerance, ready, **kwargs), 1, seed, name, extras)
        recipe = Recipe(env, kwargs, tolerance, extras, example)
        if asynchronous:
            return AsyncPoolEnvs(recipe, count, rows, workers or processors(), seed)
        return PoolEnvs(recipe, count, workers, seed, step_note)
    if isinstance(env, str) and count >= WORTH_A_VECTOR and not extras:  # infos are where both forms may differ
        together = own_vector(env, ready, count, seed, **kwargs)
        if together is not None:
            ready.close()
            return together
    envs = GymEnvs(single_constructor(env, tolerance, ready, **kwargs), count, seed, name, extras)
    if step_note is not None:
        envs.keep(StepNote.in_file(step_note, count))
    return envs


def _require_numbers(count: int, workers: int, asynchronous: bool, batch: int | None) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ConfigError(f"count={count!r}; the number of environments must be an integer of at least 1.")
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 0:
        raise ConfigError(f"workers={workers!r}; the number of processes must be an integer of at least 0.")
    if batch is not None and not asynchronous:
        raise ConfigError(
            f"batch={batch!r} has no effect where all rows step together; give asynchronous=True as well."
        )
    if batch is not None and (isinstance(batch, bool) or not isinstance(batch, int) or not 1 <= batch <= count):
        raise ConfigError(f"batch={batch!r}; the rows served at a time must be an integer from 1 to count={count}.")


def _vector(
    env: VectorEnv[Any, Any, Any], count: int, seed: int, name: str, extras: Sequence[str], pooled: bool
) -> VectorEnvs:
    if pooled:
        raise ConfigError(
            f"{name} is a VectorEnv, which steps its rows together and by itself; workers and asynchronous are for "
            "environments that are stepped one by one. Give a constructor of a single one, or leave them out."
        )
    if env.num_envs != count:
        raise ConfigError(
            f"{name} holds {env.num_envs} environments and count={count}; they must agree. Ask for {env.num_envs}, or "
            "give a constructor that takes num_envs: it is called with the number that each role needs."
        )
    return VectorEnvs(env, seed, name, extras=extras)


def own_vector(name: str, single: gym.Env[Any, Any], count: int, seed: int, **kwargs: Any) -> VectorEnvs | None:
    """The environment's own vectorised form, where it has one with the same spaces and the same time limit as
    ``single`` that can be put back exactly."""
    if single.spec is None or single.spec.vector_entry_point is None or single.spec.additional_wrappers:
        return None
    limit = strip_bookkeeping(single)[1]
    if limit is None and _may_have_a_limit(single.spec.vector_entry_point):
        return None
    options = {key: value for key, value in kwargs.items() if key != LIMIT} | ({} if limit is None else {LIMIT: limit})

    def construct() -> VectorEnv[Any, Any, Any]:
        return gym.make_vec(name, num_envs=count, vectorization_mode="vector_entry_point", **options)

    try:
        return _equivalent(construct, single, seed, name)
    except Exception:  # the single form works, so whatever is wrong with this one is no reason to stop
        return None


def _equivalent(
    construct: Callable[[], VectorEnv[Any, Any, Any]], single: gym.Env[Any, Any], seed: int, name: str
) -> VectorEnvs | None:
    """What ``construct`` makes, where it has the spaces of ``single`` and can be put back exactly."""
    with contextlib.ExitStack() as unless_used:
        env = construct()
        unless_used.callback(env.close)
        spaces = (env.single_observation_space, env.single_action_space)
        if spaces != (single.observation_space, single.action_space) or not can_be_put_back(construct, seed):
            return None
        envs = VectorEnvs(env, seed, name, exact=True)
        unless_used.pop_all()
        return envs


def _may_have_a_limit(entry_point: Any) -> bool:
    """Whether a vectorised form may truncate by a limit of its own where none is given."""
    try:
        create = entry_point if callable(entry_point) else load_env_creator(entry_point)
        parameters = inspect.signature(create).parameters
    except Exception:  # it cannot be imported, or has no signature to read
        return True
    hidden = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    return hidden or (LIMIT in parameters and parameters[LIMIT].default is not None)
