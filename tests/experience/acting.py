"""Collectors of small algorithms in small environments, for tests of plans."""

from __future__ import annotations

from typing import Any

import numpy as np

from starling.algorithms import ALGORITHMS
from starling.algorithms.base import inputs_of
from starling.algorithms.compiled.policy import Policy
from starling.backends import get_backend
from starling.components.graph.assembly import assemble
from starling.components.graph.build import build
from starling.envs import AsyncEnvs, Envs, make
from starling.envs.ready_rows import ReadyRows
from starling.roles.acting import LocalActing, ReadyActing
from starling.roles.collector import Collector


def finished(code: Any) -> Any:
    """The result of code that asks nothing of others."""
    try:
        effect = next(code)
    except StopIteration as stop:
        return stop.value
    raise AssertionError(f"{effect} was asked for")


def collector_for(algo: str, env: Any, count: int = 1, seed: int = 0, chunk: int = 1, **settings: Any) -> Collector:
    """A collector on NumPy; chunks of open length hold ``chunk`` steps of each row. ``env`` may be AsyncEnvs."""
    envs: Envs = ReadyRows(env) if isinstance(env, AsyncEnvs) else make(env, count, seed)
    count = envs.count
    cls = ALGORITHMS[algo]
    config = cls.Config(**{"envs": count, "hidden": (4,), **settings})
    algorithm = cls.compose(config, envs.observation_space, envs.action_space)
    graph = build(assemble(algorithm, inputs_of(algorithm), algorithm.traced), get_backend("numpy"), seed=1)
    policy = Policy(graph)
    acting, plan = LocalActing(policy, count), algorithm.plan
    if isinstance(envs, ReadyRows):
        accumulator = plan.asynchronous_accumulator(algorithm.step_spaces, count, chunk)
        return Collector(ReadyActing(acting, envs), envs, accumulator, algorithm, 1_000, seed)
    return Collector(acting, envs, plan.accumulator(algorithm.step_spaces, count, chunk), algorithm, 1_000, seed)


def collect(collector: Collector) -> dict[str, Any]:
    """The next chunk."""
    chunk: dict[str, Any] = finished(collector.collect())
    return chunk


def values(collector: Collector, obs: np.ndarray) -> np.ndarray:
    """The policy's own values of observations without anything remembered."""
    policy = collector.acting.policy
    return policy.values(obs, policy.no_memory(len(obs)))
