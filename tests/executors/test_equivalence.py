"""The same seed comes to the same parameters, bit for bit, in formations and on executors that mean the same."""

from __future__ import annotations

import numpy as np
import pytest

from starling.core.trees import items
from tests.executors.programs import hashed, trained

BACKENDS = ["jax", "torch"]
PLAIN = {"vtrace": False}


@pytest.mark.parametrize("algo", ["a2c", "dqn", "ppo", "sac"])
@pytest.mark.parametrize("executor", ["simulated", "processes"])
def test_sync_is_the_same_on_every_executor(algo, executor):
    assert hashed(algo, "sync", executor) == hashed(algo, "sync", "inline")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("algo", ["a2c", "impala", "ppo"])
def test_an_actor_learner_without_lag_is_sync(algo, backend):
    """In any weather: delays, losses and slow roles change nothing."""
    rough = {"seed": 5, "spread": 1.0, "jitter": 2.0, "loss": 0.2}
    apart = hashed(algo, "actor_learner", "simulated", max_lag=0, backend=backend, simulation=rough)
    assert apart == hashed(algo, "sync", "inline", backend=backend)


@pytest.mark.parametrize("executor", ["inline", "simulated", "processes"])
@pytest.mark.parametrize("algo", ["a2c", "ppo"])
def test_central_inference_in_lockstep_is_sync(algo, executor):
    assert hashed(algo, "central_inference", executor, max_lag=0) == hashed(algo, "sync", "inline")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("algo", ["a2c", "dqn", "ppo"])
def test_one_worker_with_parameter_servers_is_single(algo, backend):
    settings = {**(PLAIN if algo == "ppo" else {}), **({"envs": 1} if algo == "dqn" else {})}
    single = hashed(algo, "single", "inline", backend=backend, settings=settings)
    assert single == hashed(algo, "sharded_ps", "inline", actors=1, servers=1, backend=backend, settings=settings)
    assert single == hashed(algo, "sync", "inline", actors=1, backend=backend, settings=settings)


@pytest.mark.parametrize("executor", ["inline", "processes"])
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
