"""What PPO's own settings do."""

from __future__ import annotations

import numpy as np
import pytest

from starling.algorithms.ppo import PPO, PPOConfig
from starling.core.errors import ConfigError
from starling.core.spaces import Float, Int
from tests.algorithms.cases import Case, batch_for, built


@pytest.mark.parametrize(("setting", "asked"), [("clip", "anneal_clip"), ("entropy_weight", "anneal_entropy")])
def test_a_setting_falls_over_the_run_and_only_where_asked(setting, asked):
    def value(progress, **settings):
        config = PPOConfig(envs=2, rollout=4, minibatch=4, epochs=2, **{setting: 0.2}, **settings)
        return getattr(PPO.compose(config, Float((3,)), Int((), high=3)), setting)(progress)

    assert [value(progress, **{asked: True}) for progress in (0.0, 0.5, 1.0)] == pytest.approx([0.2, 0.1, 0.0])
    assert [value(progress, anneal=True) for progress in (0.0, 0.5, 1.0)] == [0.2, 0.2, 0.2]


def minibatch_and_state(case, progress):
    """All of a prepared batch as one minibatch, and a state at this progress."""
    graph = built(case, "numpy")
    state = {**graph.root.init(graph.initial), "progress": np.float32(progress)}
    return graph, state, graph.root.prepare(state, batch_for(case)[0])


def test_the_loss_weighs_entropy_as_the_progress_of_the_run_says():
    case = Case("ppo", "vector", "discrete", (("anneal_entropy", True), ("entropy_weight", 0.5)))
    losses = []
    for progress in (0.0, 1.0):
        graph, state, samples = minibatch_and_state(case, progress)
        losses.append(graph.root.loss(graph.initial, state, samples, None)[1].metrics["loss"])
    first, last = (float(loss["total"]) for loss in losses)
    assert last - first == pytest.approx(0.5 * float(losses[0]["entropy"]), rel=1e-5)


def test_the_loss_clips_at_the_range_of_the_progress():
    case = Case("ppo", "vector", "discrete", (("anneal_clip", True),))
    clipped = []
    for progress in (0.0, 1.0):
        graph, state, samples = minibatch_and_state(case, progress)
        policy, _ = graph.root.again(graph.initial, samples)
        samples["log_prob"] = policy.log_prob(samples["action"]) - np.float32(0.1)  # all ratios are exp(0.1) = 1.105
        clipped.append(float(graph.root.loss(graph.initial, state, samples, None)[1].metrics["clip_fraction"]))
    assert clipped == [0.0, 1.0], "within 0.2 at first, outside of 0 at the end"


def test_with_memory_a_minibatch_holds_whole_rollouts_of_some_environments():
    case = Case("ppo", "vector", "discrete", (("memory", "lstm"),))
    graph, _, prepared = minibatch_and_state(case, 0.0)
    part = graph.root.minibatch(prepared, np.array([1], np.int32))
    np.testing.assert_array_equal(part["action"], prepared["action"][:, 1:])
    np.testing.assert_array_equal(part["memory"]["h"], prepared["memory"]["h"][1:])
    with pytest.raises(ConfigError, match="cannot be shared equally by 4 minibatches; try 8"):
        PPOConfig(envs=2, rollout=8, minibatch=4, memory="lstm")
