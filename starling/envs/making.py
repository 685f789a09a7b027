"""``make``: from an id, a constructor or a vectorised environment to Envs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import TimeLimit

from starling.core.errors import ConfigError, EnvError, MissingExtraError, RequestError, UnknownNameError
from starling.envs.envpool_envs import EnvPoolEnvs
from starling.envs.gym_envs import GymEnvs
from starling.envs.naming import nearest
from starling.envs.protocol import Envs
from starling.envs.snapshots import can_be_put_back
from starling.envs.stripping import strip_bookkeeping
from starling.envs.tolerant import Tolerance, Tolerant
from starling.envs.vector_envs import VectorEnvs

__all__ = [
    "ENVPOOL",
    "WORTH_A_VECTOR",
    "EnvLike",
    "constructor_of",
    "environment_ids",
    "make",
    "name_of",
    "own_vector",
    "takes_num_envs",
]

EnvLike = str | Callable[..., Any] | VectorEnv[Any, Any, Any]

ENVPOOL = "envpool:"
LIMIT = "max_episode_steps"
WORTH_A_VECTOR = 8  # environments from which stepping them as arrays is faster than one after the other


def make(
    env: EnvLike,
    count: int,
    seed: int,
    *,
    tolerance: Tolerance | None = None,
    extras: Sequence[str] = (),
    **kwargs: Any,
) -> Envs:
    """``count`` environments that step together.

    ``env`` is an id ("CartPole-v1", "envpool:Pong-v5", "my_package:MyEnv-v0"), a constructor of a gymnasium
    environment or of a VectorEnv, or a VectorEnv. A constructor that takes ``num_envs`` is one of a VectorEnv and is
    called with ``num_envs=count``; another may return a VectorEnv of exactly ``count`` environments. ``kwargs`` go to
    the constructor; ``max_episode_steps`` truncates.
    With ``tolerance``, environments that are stepped one by one are made anew when they crash or hang. ``extras`` names
    entries of info that every step is to carry (``Step.extras``).
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ConfigError(f"count={count!r}; the number of environments must be an integer of at least 1.")
    if isinstance(env, str) and env.startswith(ENVPOOL):
        return EnvPoolEnvs(env.removeprefix(ENVPOOL), count, seed, extras=extras, **kwargs)
    name = name_of(env)
    if isinstance(env, VectorEnv):
        if kwargs:
            raise ConfigError(f"{name} is already made; {', '.join(sorted(kwargs))} cannot be given.")
        return _vector(env, count, seed, name, extras)
    sized = takes_num_envs(env)
    construct = constructor_of(env, **(kwargs | {"num_envs": count} if sized else kwargs))
    ready = [construct()]
    if isinstance(env, str) and count >= WORTH_A_VECTOR and not extras:  # infos are where both forms may differ
        together = own_vector(env, ready[0], count, seed, **kwargs)
        if together is not None:
            ready[0].close()
            return together
    if isinstance(ready[0], VectorEnv):
        return _vector(ready[0], count, seed, name, extras)
    if sized:
        raise EnvError(
            f"{name} takes num_envs, was called with num_envs={count} and returned {type(ready[0]).__name__}; such a "
            "constructor must return a gymnasium.vector.VectorEnv. Rename the argument if it makes one environment."
        )
    single: Callable[[], Any] = lambda: ready.pop() if ready else construct()  # noqa: E731
    if tolerance is None:
        return GymEnvs(single, count, seed, name, extras)
    return GymEnvs(lambda: Tolerant(single, name, tolerance), count, seed, name, extras)


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
        env = construct()
    except Exception:  # the single form works, so whatever is wrong with this one is no reason to stop
        return None
    spaces = (env.single_observation_space, env.single_action_space)
    if spaces == (single.observation_space, single.action_space) and can_be_put_back(construct, seed):
        return VectorEnvs(env, seed, name, exact=True)
    env.close()
    return None


def _may_have_a_limit(entry_point: Any) -> bool:
    """Whether a vectorised form may truncate by a limit of its own where none is given."""
    create = entry_point if callable(entry_point) else load_env_creator(entry_point)
    parameters = inspect.signature(create).parameters
    hidden = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    return hidden or (LIMIT in parameters and parameters[LIMIT].default is not None)


def name_of(env: EnvLike) -> str:
    """What messages call ``env``."""
    if isinstance(env, str):
        return env
    if isinstance(env, VectorEnv):
        return env.spec.id if env.spec is not None else type(env).__name__
    return getattr(env, "__name__", type(env).__name__)


def environment_ids() -> list[str]:
    """The ids that Gymnasium knows here."""
    return sorted(gym.registry)


def constructor_of(env: str | Callable[..., Any], **kwargs: Any) -> Callable[[], Any]:
    """A constructor without arguments of one environment."""
    if isinstance(env, str):
        return functools.partial(_make_registered, env, **kwargs)
    return functools.partial(_construct, env, **kwargs)


def takes_num_envs(env: EnvLike) -> bool:
    """Whether ``env`` is a constructor that is told how many environments to make."""
    if isinstance(env, (str, VectorEnv)):
        return False
    try:
        return "num_envs" in inspect.signature(env).parameters
    except (TypeError, ValueError):  # built in: it has no signature to read
        return False


def _vector(env: VectorEnv[Any, Any, Any], count: int, seed: int, name: str, extras: Sequence[str]) -> VectorEnvs:
    if env.num_envs != count:
        raise ConfigError(
            f"{name} holds {env.num_envs} environments and count={count}; they must agree. Ask for {env.num_envs}, or "
            "give a constructor that takes num_envs: it is called with the number that each role needs."
        )
    return VectorEnvs(env, seed, name, extras=extras)


def _construct(construct: Callable[..., Any], max_episode_steps: int | None = None, **kwargs: Any) -> Any:
    name = name_of(construct)
    try:
        env = construct(**kwargs)
    except Exception as error:
        raise EnvError(f"{name}: the constructor raised {type(error).__name__}: {error}") from error
    if isinstance(env, VectorEnv):
        if max_episode_steps is not None:
            raise ConfigError(
                f"{name}: max_episode_steps has no effect on a VectorEnv; set the limit where it is made."
            )
        return env
    if not isinstance(env, gym.Env):
        raise EnvError(
            f"{name}: the constructor returned {type(env).__name__}; a gymnasium.Env or gymnasium.vector.VectorEnv "
            "was expected."
        )
    return env if max_episode_steps is None else TimeLimit(env, max_episode_steps)


def _make_registered(name: str, **kwargs: Any) -> gym.Env[Any, Any]:
    if name.startswith("ALE/"):
        _register_atari()
    try:
        return gym.make(name, disable_env_checker=True, **kwargs)
    except (gym.error.UnregisteredEnv, gym.error.DeprecatedEnv) as error:
        raise UnknownNameError("environment", name, nearest(name, gym.registry)) from error
    except gym.error.DependencyNotInstalled as error:
        raise _missing(name, str(error)) from error
    except ImportError as error:
        raise RequestError(f"{name} cannot be imported: {error} Install the package that provides it.") from error
    except gym.error.Error as error:
        raise ConfigError(f"{name!r} cannot be made: {error}") from error
    except TypeError as error:
        raise ConfigError(f"{name!r} cannot be made with {kwargs}: {error}") from error


def _register_atari() -> None:
    try:
        import ale_py
    except ImportError:
        raise MissingExtraError("ale-py", "atari") from None
    gym.register_envs(ale_py)


def _missing(name: str, reason: str) -> RequestError:
    """The error for an environment whose engine is not installed."""
    entry = str(gym.spec(name).entry_point)
    if "mujoco" in entry:
        return MissingExtraError("mujoco", "mujoco")
    if "box2d" in entry:
        return RequestError(
            f"{name} needs Box2D, which is not installed. Use 'envpool:{name}', which brings its own "
            f"(pip install 'starling-rl[atari]'), or run: pip install 'gymnasium[box2d]'"
        )
    return RequestError(f"{name} needs a package that is not installed: {reason}")
