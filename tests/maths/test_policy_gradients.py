import numpy as np
import pytest

from starling.maths import policy_gradients as pg
from starling.maths.distributions import Categorical
from tests.maths.helpers import allclose, check_gradients, f32, i32, rlax

B, A = 5, 4
pytestmark = pytest.mark.filterwarnings("ignore:Rlax:PendingDeprecationWarning")


@pytest.fixture
def logits(rng):
    return f32(rng.normal(size=(B, A)))


@pytest.fixture
def advantage(rng):
    return f32(rng.normal(size=B))


def test_the_policy_gradient_loss_matches_rlax(run, rng, logits, advantage):
    action = i32(rng.integers(A, size=B))
    expected = rlax.policy_gradient_loss(logits, action, advantage, np.ones(B, "f"))
    loss = run(lambda x, a, adv: pg.policy_gradient_loss(Categorical(x).log_prob(a), adv), logits, action, advantage)
    allclose(loss.mean(), expected)


def test_ppo_clips_by_hand(run):
    log_ratio = f32(np.log([1.5, 1.5, 0.5, 0.5, 1.1]))
    advantage = f32([1.0, -1.0, 1.0, -1.0, 2.0])
    loss = run(pg.ppo_clip_loss, log_ratio, f32(np.zeros(5)), advantage, 0.2)
    # improvements are clipped, worsenings are not
    allclose(loss, [-1.2, 1.5, -0.5, 0.8, -2.2])
    allclose(run(pg.ppo_clip_fraction, log_ratio, f32(np.zeros(5)), 0.2), [1.0, 1.0, 1.0, 1.0, 0.0])


def test_ppo_matches_rlax(run, rng, advantage):
    log_prob, old = f32(0.3 * rng.normal(size=B)), f32(0.3 * rng.normal(size=B))
    expected = rlax.clipped_surrogate_pg_loss(np.exp(log_prob - old), advantage, 0.2)
    allclose(run(pg.ppo_clip_loss, log_prob, old, advantage, 0.2).mean(), expected)


def test_the_sampled_divergence_has_the_true_one_as_its_mean(run, rng, logits):
    p, q = (np.exp(x) / np.exp(x).sum() for x in logits[:2].astype(np.float64))
    sampled = run(pg.approximate_kl, f32(np.log(q)), f32(np.log(p)))
    assert (sampled >= 0).all()
    allclose((p * sampled).sum(), (p * np.log(p / q)).sum(), rtol=1e-4)


def test_the_penalised_loss_by_hand(run):
    loss = run(pg.kl_penalty_loss, f32([np.log(2.0)]), f32([0.0]), f32([3.0]), f32([0.5]), 4.0)
    allclose(loss, [2.0 - 6.0])


def test_the_penalty_adapts_outside_its_band_only(run):
    for kl, expected in ((0.031, 0.4), (0.02, 0.2), (0.012, 0.1), (0.014, 0.2), (0.029, 0.2)):
        allclose(run(pg.adaptive_kl_coefficient, f32(0.2), f32(kl), 0.02), expected)


def test_the_entropy_loss_matches_rlax(run, logits):
    loss = run(lambda x: pg.entropy_loss(Categorical(x).entropy(), 1.0), logits)
    allclose(loss.mean(), rlax.entropy_loss(logits, np.ones(B, "f")))


def test_value_losses_by_hand(run):
    value, old, target = f32([1.0, 3.0, 0.0]), f32([1.0, 1.0, 1.0]), f32([2.0, 4.0, -1.0])
    allclose(run(pg.value_loss, value, target), [0.5, 0.5, 0.5])
    # the clipped values are 1, 1.5 and 0.5: the larger error counts
    allclose(run(pg.clipped_value_loss, value, old, target, 0.5), [0.5, 3.125, 1.125])


def test_sac_losses_by_hand(run):
    q, log_prob = f32([2.0, 4.0]), f32([-1.0, 3.0])
    allclose(run(pg.soft_policy_loss, q, log_prob, 0.5), [-2.5, -2.5])
    loss = run(pg.entropy_coefficient_loss, f32(np.log(0.5)), log_prob, -2.0)
    allclose(loss, [1.5, -0.5])


def test_advantage_weights_are_bounded(run):
    loss = run(pg.advantage_weighted_loss, f32([-1.0, -1.0]), f32([0.0, 100.0]), 1.0, 20.0)
    allclose(loss, [1.0, 20.0])


def test_gradients_agree(rng, advantage):
    log_prob, old = f32(0.3 * rng.normal(size=B)), f32(0.3 * rng.normal(size=B))
    for loss in (pg.ppo_clip_loss, lambda p, o, a: pg.kl_penalty_loss(p, o, a, pg.approximate_kl(p, o), 0.3)):
        gradient = check_gradients(lambda p, o, a, loss=loss: loss(p, o, a), log_prob, fixed=(old, advantage))
        assert np.count_nonzero(gradient[0])
    targets = f32(rng.normal(size=B))
    check_gradients(lambda v, o, t: pg.clipped_value_loss(v, o, t, 0.2), log_prob, fixed=(old, targets))
    check_gradients(lambda p, a: pg.advantage_weighted_loss(p, a), log_prob, fixed=(advantage,))
    check_gradients(lambda q, p: pg.soft_policy_loss(q, p, 0.2), log_prob, old)
    gradient = check_gradients(lambda t, p: pg.entropy_coefficient_loss(t, p, -1.0), f32(0.3), old)
    allclose(gradient[0], -np.exp(0.3) * (old - 1.0).mean(), rtol=1e-3)
    assert np.count_nonzero(gradient[1]) == 0


def test_no_gradient_flows_into_advantages_and_old_policies(rng, advantage):
    log_prob, old = f32(0.3 * rng.normal(size=B)), f32(0.3 * rng.normal(size=B))
    gradients = check_gradients(pg.ppo_clip_loss, log_prob, old, advantage)
    assert [np.count_nonzero(g) > 0 for g in gradients] == [True, False, False]
    gradients = check_gradients(pg.policy_gradient_loss, log_prob, advantage)
    assert [np.count_nonzero(g) > 0 for g in gradients] == [True, False]
