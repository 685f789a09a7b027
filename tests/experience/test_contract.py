"""One contract for every plan by which somebody acts: those of the algorithms, and those that can stand in for one."""

from __future__ import annotations

import numpy as np
import pytest

from starling.algorithms import ALGORITHMS
from starling.core.errors import ConfigError
from starling.core.trees import items
from starling.experience import PLANS, plan_like
from starling.experience.cadence import Round
from starling.experience.plan import Plan
from starling.experience.transitions import Transitions
from tests.algorithms.cases import FITS, SMALL
from tests.experience.acting import collect, collector_for
from tests.experiments.toys import Over, Slope

OWN = [(algo, None) for algo in ALGORITHMS if algo != "bc"]
IN_PLACE = [("dqn", name) for name, plan in PLANS.items() if issubclass(plan, Transitions)]


@pytest.fixture(params=[*OWN, *IN_PLACE], ids=lambda pair: "-".join(filter(None, pair)))
def collector(request):
    algo, plan = request.param
    settings = SMALL[algo] | ({"plan": plan} if plan else {}) | ({"episode_length": 20} if algo == "reinforce" else {})
    env = Slope if FITS[algo][0] == "continuous" else Over
    return collector_for(algo, env, settings.pop("envs", 1), chunk=5, **settings)


def fed(collector, chunks=6):
    """The plan's feed with some chunks; at least those of a batch, and enough to learn from."""
    algorithm = collector.algorithm
    plan: Plan = algorithm.plan
    feed = plan.feed(algorithm.step_spaces, plan.chunks(1), seed=0)
    while chunks > 0 or not plan.enough(collector.steps) or not feed.ready:
        feed.add([collect(collector)["data"] for _ in range(plan.chunks(1))])
        chunks -= plan.chunks(1)
    return feed


def test_every_chunk_has_the_layout_of_a_blank_one(collector):
    blank = dict(items(collector.accumulator.blank()))
    for _ in range(4):
        chunk = dict(items(collect(collector)["data"]))
        assert chunk.keys() == blank.keys()
        for path, leaf in chunk.items():
            leaf, room = np.asarray(leaf), np.asarray(blank[path])
            assert leaf.dtype == room.dtype, path
            assert leaf.shape[1:] == room.shape[1:], path
            assert leaf.shape[:1] <= room.shape[:1], path


def test_batches_are_what_the_plan_says(collector):
    space = collector.algorithm.plan.batch_space(collector.algorithm.step_spaces)
    batches = list(fed(collector).batches(Round(0.0, 1)))
    assert batches
    for batch in batches:
        assert batch.updates == 1
        assert space.mismatch(batch.data) is None


def test_a_restored_feed_goes_on_with_the_same_batches(collector):
    feed, algorithm = fed(collector), collector.algorithm
    other = algorithm.plan.feed(algorithm.step_spaces, algorithm.plan.chunks(1), seed=0)
    if feed.whole:  # it keeps nothing between rounds
        assert list(items(feed.state())) == []
        return
    other.restore(feed.state())
    for one, same in zip(feed.batches(Round(0.5, 2)), other.batches(Round(0.5, 2)), strict=True):
        np.testing.assert_equal(dict(items(one.data)), dict(items(same.data)))


def test_a_plan_that_one_learner_shares_is_the_plan(collector):
    plan = collector.algorithm.plan
    assert plan.shared(1) == plan


def test_a_restored_cadence_goes_on_with_the_same_rounds(collector):
    plan = collector.algorithm.plan
    cadence, other = plan.cadence(100_000), plan.cadence(100_000)
    list(cadence.due(10_000))
    other.restore(cadence.state())
    assert list(cadence.due(20_000)) == list(other.due(20_000)) != []


def test_a_plan_of_other_batches_is_refused_with_those_that_fit():
    assert plan_like(Transitions, "transitions") is Transitions
    with pytest.raises(ConfigError, match=r"plan='rollouts' does not make batches like .*; try transitions"):
        plan_like(Transitions, "rollouts")
