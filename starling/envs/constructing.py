"""Constructors of environments: from an id, a registered name or a callable, with errors that say what to do."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import TimeLimit

from starling.core.errors import ConfigError, EnvError, MissingExtraError, RequestError, UnknownNameError
from starling.core.registry import Registry
from starling.envs.naming import nearest
from starling.envs.protocol import Envs
from starling.envs.spaces import KINDS, declaration
from starling.envs.tolerant import Tolerance, Tolerant

__all__ = [
    "ENVIRONMENTS",
    "EnvLike",
    "adapter_of",
    "constructor_of",
    "environment_ids",
    "name_of",
    "single_constructor",
    "takes_num_envs",
]

# What ``name`` or ``name:TASK`` stands for: an adapter, or a constructor, which is told the task where there is one.
ENVIRONMENTS: Registry[Callable[..., Any]] = Registry(
    "environment", {"envpool": "starling.envs.envpool_envs:EnvPoolEnvs"}, Callable
)

EnvLike = str | Callable[..., Any] | VectorEnv[Any, Any, Any]

STEPPING = (
    "asynchronous",
    "batch",
    "extras",
    "workers",
)  # what ``make`` takes for itself: how environments are stepped

NO_LIMIT = -1  # of max_episode_steps, as Gymnasium has it


def name_of(env: EnvLike) -> str:
    """What messages call ``env``."""
    if isinstance(env, str):
        return env
    if isinstance(env, VectorEnv):
        return env.spec.id if env.spec is not None else type(env).__name__
    return getattr(env, "__name__", type(env).__name__)


def environment_ids() -> list[str]:
    """The ids that Gymnasium knows here, and the names that are registered."""
    return [*sorted(gym.registry), *ENVIRONMENTS]


def _registered(env: EnvLike) -> tuple[Callable[..., Any], str] | None:
    """What a registered name stands for, and its task; None for what Gymnasium knows."""
    if not isinstance(env, str) or env in gym.registry or env.startswith("ALE/"):
        return None
    name, _, task = env.partition(":")
    return (ENVIRONMENTS[name], task) if name in ENVIRONMENTS else None


def adapter_of(env: EnvLike) -> tuple[Any, str] | None:
    """The subclass of Envs that a name asks for, and its task; None for what is made as a gymnasium environment."""
    found = _registered(env)
    return found if found is not None and isinstance(found[0], type) and issubclass(found[0], Envs) else None


def constructor_of(env: str | Callable[..., Any], **kwargs: Any) -> Callable[[], Any]:
    """A constructor without arguments of one environment; ``kwargs`` as for ``make``."""
    kwargs = {key: value for key, value in kwargs.items() if key not in STEPPING}
    _require_limit(kwargs.get("max_episode_steps"))
    if (found := _registered(env)) is not None:
        construct, task = found
        return functools.partial(_construct, functools.partial(construct, task) if task else construct, **kwargs)
    if isinstance(env, str):
        return functools.partial(_make_registered, env, **kwargs)
    return functools.partial(_construct, env, **kwargs)


def _require_limit(steps: Any) -> None:
    if steps not in (None, NO_LIMIT) and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 1):
        raise ConfigError(f"max_episode_steps={steps!r}; a time limit must be an integer of at least 1, or left out.")


def single_constructor(
    env: str | Callable[..., Any], tolerance: Tolerance | None, first: gym.Env[Any, Any] | None = None, **kwargs: Any
) -> Callable[[], gym.Env[Any, Any]]:
    """Like ``constructor_of``, with ``first`` for the first that it makes where one is ready; ``tolerance`` lets
    environments be made anew."""
    construct, ready = constructor_of(env, **kwargs), [] if first is None else [first]
    if tolerance is None:
        return lambda: ready.pop() if ready else construct()
    name = name_of(env)
    return lambda: Tolerant(lambda: ready.pop() if ready else construct(), name, tolerance)


def takes_num_envs(env: EnvLike) -> bool:
    """Whether ``env`` is a constructor that is told how many environments to make."""
    found = _registered(env)
    construct = env if found is None else found[0]
    if isinstance(construct, (str, VectorEnv)):
        return False
    try:
        return "num_envs" in inspect.signature(construct).parameters
    except (TypeError, ValueError):  # built in: it has no signature to read
        return False


def _construct(construct: Callable[..., Any], max_episode_steps: int | None = None, **kwargs: Any) -> Any:
    name = name_of(construct)
    try:
        env = construct(**kwargs)
    except Exception as error:
        raise _constructor_raised(name, error) from error
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
    _require_spaces(env, name)
    return env if max_episode_steps in (None, NO_LIMIT) else TimeLimit(env, max_episode_steps)


def _require_spaces(env: gym.Env[Any, Any], name: str) -> None:
    """Refuse an environment without spaces here, where it is made: whatever wraps it asks for them."""
    for kind in KINDS:
        declaration(env, kind, name)


def _make_registered(name: str, **kwargs: Any) -> gym.Env[Any, Any]:
    if name.startswith("ALE/"):
        _register_atari()
    _import_module_of(name)
    try:
        env = gym.make(name, disable_env_checker=True, **kwargs)
    except (gym.error.UnregisteredEnv, gym.error.DeprecatedEnv) as error:
        raise UnknownNameError("environment", name, nearest(name, [*gym.registry, *ENVIRONMENTS])) from error
    except gym.error.DependencyNotInstalled as error:
        raise _missing(name, str(error)) from error
    except ImportError as error:
        raise _not_importable(name, error) from error
    except gym.error.Error as error:
        raise ConfigError(f"{name!r} cannot be made: {error}") from error
    except TypeError as error:
        raised = error.__cause__  # Gymnasium raises those of constructors anew, and some of its own
        if raised is None or _is_about_the_call(raised, kwargs):
            raise ConfigError(f"{name!r} cannot be made with {kwargs}: {raised or error}") from error
        raise _constructor_raised(name, raised) from raised
    except Exception as error:
        raise _constructor_raised(name, error) from error
    _require_spaces(env, name)
    return env


def _import_module_of(name: str) -> None:
    """Import the module in MODULE:ID, which registers the environment."""
    module, colon, _ = name.rpartition(":")
    if not colon:
        return
    if not all(part.isidentifier() for part in module.split(".")):
        raise ConfigError(f"{name!r} is no name of an environment; give an id, or MODULE:ID with a module to import.")
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise _not_importable(name, error) from error
    except Exception as error:
        raise EnvError(f"{name}: importing {module} raised {type(error).__name__}: {error}") from error


def _not_importable(name: str, error: ImportError) -> RequestError:
    reason = str(error).rstrip(".")
    return RequestError(f"{name} cannot be imported: {reason}. Install the package that provides it.")


def _constructor_raised(name: str, error: BaseException) -> EnvError:
    return EnvError(f"{name}: the constructor raised {type(error).__name__}: {error}")


def _is_about_the_call(error: BaseException, kwargs: dict[str, Any]) -> bool:
    """Whether a TypeError says that the constructor does not take these arguments, and not what it did with them."""
    traceback = error.__traceback__
    in_its_code = traceback is not None and traceback.tb_next is not None
    return not in_its_code or any(f"'{key}'" in str(error) for key in kwargs)


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
