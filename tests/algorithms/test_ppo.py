"""What PPO's own settings do."""

from __future__ import annotations

import numpy as np
import pytest

from starling.algorithms.ppo import PPO, PPOConfig
from starling.core.spaces import Float, Int
from tests.algorithms.cases import Case, batch_for, built


@pytest.mark.parametrize(("setting", "asked"), [("clip", "anneal_clip"), ("entropy_weight", "anneal_entropy")])
def test_a_setting_falls_over_the_gradient_steps_of_a_run_and_only_where_asked(setting, asked):
    def value(count, **settings):
        config = PPOConfig(envs=2, rollout=4, minibatch=4, epochs=2, **{setting: 0.2}, **settings)
        ppo = PPO.compose(config, Float((3,)), Int((), high=3), 2, total_steps=80)
        return getattr(ppo, setting)(count)

    steps = 10 * 2 * 2  # batches, epochs, minibatches
    assert [value(count, **{asked: True}) for count in (0, steps // 2, steps)] == pytest.approx([0.2, 0.1, 0.0])
    assert [value(count, anneal=True) for count in (0, steps // 2, steps)] == [0.2, 0.2, 0.2]


def test_the_loss_weighs_entropy_as_its_gradient_step_says():
    case = Case("ppo", "vector", "discrete", (("anneal_entropy", True), ("entropy_weight", 0.5)))
    graph = built(case, "numpy")
    samples = graph.function("samples")(graph.initial, batch_for(case)[0])
    losses = [graph.function("loss")(graph.initial, samples, np.float32(count))[1]["loss"] for count in (0, 1e6)]
    first, last = (float(loss["total"]) for loss in losses)
    assert last - first == pytest.approx(0.5 * float(losses[0]["entropy"]), rel=1e-5)


def test_the_loss_clips_at_the_range_of_its_gradient_step():
    case = Case("ppo", "vector", "discrete", (("anneal_clip", True),))
    graph = built(case, "numpy")
    batch, _ = batch_for(case)
    p, ppo = graph.initial, graph.root
    samples = graph.function("samples")(p, batch)
    policy = ppo.policy.distribution(p.policy, ppo.features(p, samples["obs"]))
    samples["log_prob"] = policy.log_prob(samples["action"]) - np.float32(0.1)  # all ratios are exp(0.1) = 1.105
    loss = graph.function("loss")
    clipped = [float(loss(p, samples, np.float32(count))[1]["clip_fraction"]) for count in (0, 1e6)]
    assert clipped == [0.0, 1.0], "within 0.2 at first, outside of 0 at the end"
