"""The learner and the policy that follows it."""

from __future__ import annotations

import numpy as np
import pytest

from starling.algorithms.compiled.learner import GradientLearner, Learner
from starling.algorithms.compiled.policy import Policy
from starling.core.errors import CheckpointError, RunError
from starling.core.trees import items, map_leaves
from starling.maths.normalisation import moments_from_sums, sums_of_moments
from starling.records import checkpoint
from starling.records.hashes import parameter_hash
from tests.algorithms.cases import Case, batch_for, built, observations, root

CASES = [Case("dqn", "vector", "discrete"), Case("ppo", "vector", "discrete"), Case("sac", "vector", "continuous")]


def learn(learner, case, times=3, start=0):
    for seed in range(start, start + times):
        batch, _ = batch_for(case, seed)
        learner.update(batch, 0.0)


@pytest.fixture(params=["jax", "torch"])
def backend(request):
    return request.param


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_state_that_went_through_a_file_goes_on_exactly(case, backend, tmp_path):
    one, other = Learner(built(case, backend), seed=1), Learner(built(case, backend), seed=2)
    learn(one, case)
    checkpoint.save(tmp_path, "state", one.state())
    other.restore(checkpoint.load(tmp_path / "state")[0])
    learn(one, case, start=3)
    learn(other, case, start=3)
    assert one.version == other.version == 6
    assert parameter_hash(one.weights()) == parameter_hash(other.weights())


def test_weights_that_were_handed_out_stay_as_they_are(backend):
    learner = Learner(built(CASES[0], backend), seed=1)
    weights = learner.weights()
    before = parameter_hash(weights)
    learn(learner, CASES[0])
    assert parameter_hash(weights) == before != parameter_hash(learner.weights())


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(("updates", "promises"), [(0, True), (3, True), (3, False)])
def test_weights_asked_for_before_an_update_are_those_from_before_it(case, backend, updates, promises):
    learner = Learner(built(case, backend), seed=1, promises=promises)
    learn(learner, case, updates)
    before, later = learner.acting_weights(), learner.promised_weights()
    learn(learner, case, start=3)
    assert parameter_hash(later()) == parameter_hash(before) != parameter_hash(learner.acting_weights())
    assert parameter_hash(learner.promised_weights()()) == parameter_hash(learner.acting_weights())


def test_a_policy_acts_with_the_weights_it_was_given(backend):
    case = CASES[1]
    learner, policy = Learner(built(case, backend), seed=1), Policy(built(case, "numpy"))
    obs = observations(case, np.random.default_rng(0), (4,))
    nothing = policy.no_memory(4)
    before = policy.values(obs, nothing)
    learn(learner, case)
    np.testing.assert_array_equal(policy.values(obs, nothing), before)
    policy.load(learner.weights(), learner.version)
    after = policy.values(obs, nothing)
    assert policy.version == 3
    assert np.abs(after - before).max() > 1e-6
    same = Policy(built(case, backend))
    same.load(learner.weights(), learner.version)
    np.testing.assert_allclose(same.values(obs, nothing), after, atol=1e-5)


def test_a_learner_that_diverged_says_so(backend):
    case = CASES[0]
    learner = Learner(built(case, backend), seed=1)
    batch, _ = batch_for(case)
    batch["reward"][0] = np.inf
    learner.update(batch, 0.0)
    with pytest.raises(RunError, match="the learner diverged"):
        learner.metrics()


def test_parameters_of_another_network_are_refused(backend):
    learner = Learner(built(CASES[0], backend), seed=1)
    with pytest.raises(CheckpointError, match="do not belong"):
        learner.fitted(Learner(built(CASES[1], backend), seed=1).weights())
    wrong = dict(items(learner.weights()))
    with pytest.raises(CheckpointError):
        learner.fitted({"q": wrong})


def test_metrics_are_empty_before_the_first_update(backend):
    assert Learner(built(CASES[0], backend), seed=1).metrics() == {}
    assert root(CASES[0]).name == "dqn"


def test_statistics_that_no_gradient_moves_are_merged_as_those_of_the_joined_batch(backend):
    """Two learners that share a batch absorb what one with all of it would."""
    case = Case("ppo", "vector", "discrete", (("normalise_observations", True), ("normalise_rewards", True)))
    whole, _ = batch_for(case)
    halves = [
        {k: v[i : i + 1] if k in ("next_obs", "memory") else v[:, i : i + 1] for k, v in whole.items()} for i in (0, 1)
    ]
    one = GradientLearner(built(case, backend), seed=1)
    one.absorb(one.statistics(whole))
    other = GradientLearner(built(case, backend), seed=1)
    sums = [sums_of_moments(other.statistics(half)) for half in halves]
    other.absorb(moments_from_sums(map_leaves(lambda *x: sum(x), *sums)))
    for (path, here), (_, there) in zip(items(one.weights()), items(other.weights()), strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-5, atol=1e-6, err_msg=path)
    assert one.weights()["normaliser"]["observation"]["count"] == whole["mask"].sum()
