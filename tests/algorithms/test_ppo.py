"""What PPO's own settings do, and its loss, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from starling.algorithms.ppo import PPO, PPOConfig
from starling.core.errors import ConfigError
from starling.core.spaces import Float, Int
from starling.core.trees import items
from tests.algorithms.cases import Case, batch_for, built
from tests.algorithms.tables import (
    ADVANTAGES,
    GAMMA,
    RETURNS,
    VALUES,
    Found,
    actor_critic_tables,
    assert_gradients,
    at_steps,
    log_probs,
    rollout,
    tabular,
    values,
)


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


# The loss, by hand: the values have moved since the update began, so that the returns are not those of now.
RATIOS = np.array([2, 0.5, 2, 0.5, 1.1])  # π / π_old of the steps that count
MOVED = np.array([1.2, 2.5, 3.9])


def ppo(**settings):
    numbers = {"gamma": GAMMA, "gae_lambda": 1.0, "value_weight": 0.25, "entropy_weight": 0.5, "standardise": False}
    return tabular("ppo", envs=2, rollout=3, minibatch=6, epochs=1, **{**numbers, **settings})


def surrogate_loss(p, batch, advantages, returns, clip=0.2, near=np.inf):
    """−min(ρ·A, clip(ρ)·A) + ¼ · ½ (v − G)² − ½ · H(π), with the worse of v and v kept ``near`` what it was before."""
    states, steps = at_steps(batch["obs"]), np.arange(5)
    log_p = log_probs(p, states)
    ratios = np.exp(log_p[steps, at_steps(batch["action"])] - at_steps(batch["log_prob"]))
    policy = -np.mean(np.minimum(ratios * advantages, np.clip(ratios, 1 - clip, 1 + clip) * advantages))
    now, before = values(p, states), VALUES[states]
    kept = before + np.clip(now - before, -near, near)
    value = 0.5 * np.mean(np.maximum((now - returns) ** 2, (kept - returns) ** 2))
    return policy + 0.25 * value + 0.5 * np.mean(np.sum(np.exp(log_p) * log_p, axis=-1))


def later_step(algorithm, batch):
    """The loss and the gradients of a step that comes after the values have moved; and the parameters then."""
    rows, before = np.arange(6, dtype=np.int32), actor_critic_tables(algorithm)
    prepared = algorithm.prepare(algorithm.init(before), batch)
    params = actor_critic_tables(algorithm, MOVED)
    state = algorithm.init(params)
    gradients, learned, _ = algorithm.gradients(state, prepared, rows)
    loss, _ = algorithm.loss(params, state, algorithm.minibatch(prepared, rows), rows)
    return Found(float(loss), learned, dict(items(gradients))), params


# λ = ½: the first advantage is δ_0 + γ·λ·δ_1 = 1 + ¼; the others are single steps.
HALF = np.array([1.25, *ADVANTAGES[1:]])
# V-trace with ρ̄ = min(ρ, 1): vs = v + ρ̄·δ, of the first step 1 + 1 + ½·(2.5 − 2); q of the first step 1 + ½·2.5.
VTRACE = np.array([1 + 1 + 0.25, 2 + 0.5 * 1, 4 - 3.5, 4 - 0.5 * 1, 1 + 1])
VTRACE_ADVANTAGES = np.array([1 + 0.5 * 2.5 - 1, *ADVANTAGES[1:]])


@pytest.mark.parametrize(
    ("settings", "advantages", "returns", "clips"),
    [
        ({}, ADVANTAGES, RETURNS, {}),
        ({"gae_lambda": 0.5}, HALF, HALF + VALUES[[0, 1, 2, 2, 0]], {}),
        ({"clip": 0.05, "clip_value": 0.25}, ADVANTAGES, RETURNS, {"clip": 0.05, "near": 0.25}),
        ({"standardise": True}, (ADVANTAGES - ADVANTAGES.mean()) / ADVANTAGES.std(), RETURNS, {}),
        ({"vtrace": True}, VTRACE_ADVANTAGES, VTRACE, {}),
    ],
    ids=["plain", "lambda", "clips", "standardise", "vtrace"],
)
def test_ratios_that_went_far_enough_have_no_slope_and_advantages_stay_those_of_the_beginning(
    settings, advantages, returns, clips
):
    batch = rollout(RATIOS)
    found, params = later_step(ppo(**settings), batch)

    def by_hand(p):
        return surrogate_loss(p, batch, advantages, returns, **clips)

    assert found.loss == pytest.approx(by_hand(params), rel=1e-6)
    assert_gradients(found, by_hand, params)
