"""The same seed comes to the same parameters, bit for bit, in formations and on executors that mean the same."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from starling.core.trees import items
from tests.executors.programs import SMALL, hashed, trained

BACKENDS = ["jax", "torch"]
PLAIN = {"vtrace": False}
SLOW = pytest.mark.slow


@pytest.mark.parametrize("algo", ["a2c", "dqn", "es", "ppo", "r2d2", "sac"])
def test_sync_is_the_same_in_a_simulation(algo):
    assert hashed(algo, "sync", "simulated") == hashed(algo, "sync", "inline")


@pytest.mark.parametrize("algo", ["dqn", "ppo", *(pytest.param(algo, marks=SLOW) for algo in ("es", "r2d2", "sac"))])
def test_sync_is_the_same_on_processes(algo):
    assert hashed(algo, "sync", "processes") == hashed(algo, "sync", "inline")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("algo", ["a2c", "impala", "ppo"])
def test_an_actor_learner_without_lag_is_sync(algo, backend):
    """Whatever goes wrong: delays, losses and slow roles change nothing."""
    rough = {"seed": 5, "spread": 1.0, "jitter": 2.0, "loss": 0.2}
    apart = hashed(algo, "actor_learner", "simulated", max_lag=0, backend=backend, simulation=rough)
    assert apart == hashed(algo, "sync", "inline", backend=backend)


@pytest.mark.parametrize("executor", ["inline", "simulated", pytest.param("processes", marks=SLOW)])
@pytest.mark.parametrize("algo", ["a2c", "ppo"])
def test_central_inference_in_lockstep_is_sync(algo, executor):
    assert hashed(algo, "central_inference", executor, max_lag=0) == hashed(algo, "sync", "inline")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("algo", ["a2c", "dqn", "ppo"])
def test_one_worker_with_parameter_servers_is_single(algo, backend):
    settings = PLAIN if algo == "ppo" else {}
    single = hashed(algo, "single", "inline", backend=backend, settings=settings)
    assert single == hashed(algo, "sharded_ps", "inline", actors=1, servers=1, backend=backend, settings=settings)


@pytest.mark.parametrize("algo", [*SMALL])
def test_one_actor_in_lockstep_is_single(algo):
    assert hashed(algo, "single", "inline", backend="torch") == hashed(
        algo, "sync", "inline", actors=1, backend="torch"
    )


@pytest.mark.parametrize("algo", ["dqn", "sac"])
@pytest.mark.parametrize(("envs", "every"), [(1, 4), (3, 10), (8, 4), (5, 1)])
def test_it_is_at_any_number_of_environments(algo, envs, every):
    settings = {"envs": envs, "train_every": every}
    options = {"steps": 200, "backend": "torch", "settings": settings}
    assert hashed(algo, "single", "inline", **options) == hashed(algo, "sync", "inline", actors=1, **options)


@pytest.mark.parametrize("executor", ["inline", "processes"])
def test_an_inference_server_remembers_as_actors_would(executor):
    settings = {"memory": "lstm", "memory_size": 8}
    central = hashed("a2c", "central_inference", executor, max_lag=0, settings=settings, backend="torch")
    assert central == hashed("a2c", "sync", "inline", settings=settings, backend="torch")


@pytest.mark.parametrize("formation", ["sync", "central_inference", "allreduce", "sharded_ps"])
def test_normalisation_has_the_same_statistics_in_every_formation(formation):
    settings = {"normalise_observations": True, "normalise_rewards": True}
    options = {"max_lag": 0} if formation == "central_inference" else {}
    alone = {"actors": 1, "servers": 1} if formation == "sharded_ps" else {"actors": 2}
    here = dict(items(trained("a2c", formation, "inline", settings=settings, backend="torch", **options, **alone)))
    other = ("single", {}) if formation == "sharded_ps" else ("sync", {"actors": 2})
    there = dict(items(trained("a2c", other[0], "inline", settings=settings, backend="torch", **other[1])))
    assert float(here["normaliser.observation.count"]) > 300
    for path, value in there.items():
        np.testing.assert_allclose(here[path], value, rtol=2e-4, atol=1e-5, err_msg=path)


def short_episodes(num_envs):
    """Every step after an end is none, as Gymnasium's vectors do by default: chunks differ in the rows that count."""
    alone = [lambda: gym.make("CartPole-v1", max_episode_steps=30) for _ in range(num_envs)]
    return SyncVectorEnv(alone, autoreset_mode=AutoresetMode.NEXT_STEP)


@pytest.mark.parametrize("algo", ["a2c", "impala"])
def test_learners_weigh_their_gradients_by_the_rows_that_count(algo):
    options = {"actors": 2, "construct": short_episodes, "steps": 1_600}
    two = dict(items(trained(algo, "allreduce", "inline", learners=2, **options)))
    for path, weight in items(trained(algo, "sync", "inline", **options)):
        np.testing.assert_allclose(two[path], weight, rtol=1e-5, atol=1e-5, err_msg=path)


@pytest.mark.parametrize("executor", ["inline", pytest.param("processes", marks=SLOW)])
@pytest.mark.parametrize("algo", ["a2c", "impala"])
def test_two_learners_that_average_are_one_with_the_joined_batch(algo, executor):
    two = dict(items(trained(algo, "allreduce", executor, learners=2, actors=2)))
    one = dict(items(trained(algo, "sync", "inline", actors=2)))
    for path, weight in one.items():
        np.testing.assert_allclose(two[path], weight, rtol=1e-5, atol=1e-5, err_msg=path)


def test_learners_that_average_stay_identical():
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from starling.executors import get_executor
    from starling.records.hashes import parameter_hash
    from tests.executors.programs import Watcher, program_of

    with TemporaryDirectory() as directory:
        program = program_of("ppo", "allreduce", Path(directory), learners=2, actors=2)
        results = get_executor("inline")(program, Watcher(), False)
    assert len(results) == 2
    assert len({parameter_hash(weights) for weights in results.values()}) == 1


def test_processes_that_step_environments_change_nothing():
    alone = hashed("a2c", "single", "inline", backend="torch", steps=200)
    assert alone == hashed("a2c", "single", "inline", backend="torch", steps=200, env_workers=2)
