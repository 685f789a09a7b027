"""Environments: many of them stepping together, behind one protocol."""

from starling.envs.checking import CheckResult, check
from starling.envs.constructing import EnvLike
from starling.envs.determinism import is_deterministic
from starling.envs.envpool_envs import AsyncEnvPoolEnvs, EnvPoolEnvs
from starling.envs.gym_envs import GymEnvs
from starling.envs.making import make
from starling.envs.pool_envs import AsyncPoolEnvs, PoolEnvs
from starling.envs.protocol import AsyncEnvs, Envs, Episode, Step
from starling.envs.spaces import from_gymnasium, to_gymnasium
from starling.envs.vector_envs import VectorEnvs

__all__ = [
    "AsyncEnvPoolEnvs",
    "AsyncEnvs",
    "AsyncPoolEnvs",
    "CheckResult",
    "EnvLike",
    "EnvPoolEnvs",
    "Envs",
    "Episode",
    "GymEnvs",
    "PoolEnvs",
    "Step",
    "VectorEnvs",
    "check",
    "from_gymnasium",
    "is_deterministic",
    "make",
    "to_gymnasium",
]
