import numpy as np
import pytest
from scipy import optimize

from starling.maths import mpo
from starling.maths.distributions import Categorical
from starling.maths.gaussians import Gaussian
from tests.maths.helpers import allclose, check_gradients, f32, rlax

S, B, A, D = 6, 4, 3, 2


def constraint(value, epsilon):
    return rlax.LagrangePenalty(alpha=value, epsilon=epsilon, per_dimension=False)


def test_positive_is_above_zero_everywhere(run):
    values = run(mpo.positive, f32([-200.0, 0.0, 30.0]))
    assert (values > 0).all()
    allclose(values[1:], [np.log(2), 30.0])


def test_the_sampled_e_step_matches_rlax(run, rng):
    q = f32(rng.normal(size=(S, B)))
    weights, loss = run(mpo.sampled_e_step, q, f32(0.7), 0.1)
    expected_loss, expected, _ = rlax.mpo_compute_weights_and_temperature_loss(
        q, constraint(f32(0.7), f32(0.1)), lambda x: x
    )
    allclose(weights, expected)
    allclose(loss, expected_loss)


def test_the_best_temperature_puts_the_weights_epsilon_from_uniform(run, rng):
    q, epsilon = f32(rng.normal(size=(S, 1))), 0.2
    found = optimize.minimize_scalar(
        lambda t: float(mpo.sampled_e_step(q.astype(np.float64), t, epsilon)[1][0]), bounds=(0.05, 20), method="bounded"
    )
    weights, _ = run(mpo.sampled_e_step, q, f32(found.x), epsilon)
    allclose((weights * np.log(weights * S)).sum(), epsilon, rtol=1e-2)


def test_the_categorical_e_step_by_brute_force(run, rng):
    q, logits = f32(rng.normal(size=(B, A))), f32(rng.normal(size=(B, A)))
    prior = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    unnormalised = prior * np.exp(q / 0.5)
    weights, loss = run(lambda q, x: mpo.categorical_e_step(q, Categorical(x).log_probs(), 0.5, 0.1), q, logits)
    allclose(weights, unnormalised / unnormalised.sum(axis=-1, keepdims=True))
    allclose(loss, 0.5 * (0.1 + np.log(unnormalised.sum(axis=-1))))


def test_the_top_half_e_step_matches_rlax(run, rng):
    advantage = f32(rng.normal(size=(4, 6)))
    weights, loss = run(mpo.top_half_e_step, advantage, f32(0.5), 0.1)
    ones = np.ones_like(advantage)
    expected_loss, expected, _ = rlax.vmpo_compute_weights_and_temperature_loss(
        advantage, ones, ones, constraint(f32(0.5), f32(0.1)), lambda x: x, top_k_fraction=0.5
    )
    allclose(weights, expected)
    allclose(loss, expected_loss, rtol=1e-4)
    assert np.count_nonzero(weights) == advantage.size // 2


def test_the_top_half_of_one_is_that_one(run):
    weights, loss = run(mpo.top_half_e_step, f32([3.0]), f32(2.0), 0.1)
    allclose(weights, [1.0])
    allclose(loss, 2.0 * (0.1 + 1.5))


def test_the_policy_loss_by_hand(run):
    weights, log_prob = f32([[0.25], [0.75]]), f32([[-1.0], [-2.0]])
    allclose(run(mpo.weighted_policy_loss, weights, log_prob), [1.75])
    allclose(run(mpo.weighted_policy_loss, weights.T.copy(), log_prob.T.copy(), axis=-1), [1.75])


def test_the_multiplier_rises_when_the_constraint_is_broken():
    def losses(alpha, kl):
        penalty, dual = mpo.constraint_losses(kl, alpha, 0.1)
        return penalty + dual

    gradients = check_gradients(losses, f32([2.0, 2.0]), f32([0.3, 0.05]))
    allclose(gradients[0], [-0.1, 0.025], atol=1e-4)  # descending raises the first, lowers the second
    allclose(gradients[1], [1.0, 1.0], atol=1e-4)  # α weighs the policy's divergence


def test_decoupled_divergences_add_up_to_the_moves_made_one_at_a_time(run, rng):
    args = [f32(0.3 * rng.normal(size=(B, D))) for _ in range(4)]

    def both(m, s, n, t):
        return mpo.decoupled_gaussian_kl(Gaussian(m, s), Gaussian(n, t))

    of_mean, of_std = run(both, *args)
    m, s, n, t = (x.astype(np.float64) for x in args)
    allclose(of_mean, 0.5 * ((m - n) / np.exp(s)) ** 2)
    allclose(of_std, t - s + 0.5 * np.exp(2 * (s - t)) - 0.5, atol=1e-5)


def test_the_decoupled_policy_loss_teaches_mean_and_deviation_apart(rng):
    old_mean, old_std, mean, log_std = (f32(0.3 * rng.normal(size=(B, D))) for _ in range(4))
    actions, weights = f32(rng.normal(size=(S, B, D))), f32(rng.dirichlet(np.ones(S), size=B).T)

    def loss(mean, log_std, old_mean, old_std, actions, weights):
        old, new = Gaussian(old_mean, old_std), Gaussian(mean, log_std)
        return mpo.decoupled_gaussian_policy_loss(weights, actions, old, new)

    gradients = check_gradients(loss, mean, log_std, old_mean, old_std, fixed=(actions, weights))
    # only the old deviation scales the mean's gradient: Σ w (μ − a) / σ_old²
    expected = (weights[..., None] * (mean - actions)).sum(axis=0) / np.exp(2 * old_std) / B
    allclose(gradients[0], expected, atol=1e-4)
    assert [np.count_nonzero(g) > 0 for g in gradients] == [True, True, False, False]


@pytest.mark.parametrize("step", [mpo.sampled_e_step, mpo.top_half_e_step])
def test_temperature_gradients_agree(rng, step):
    q = f32(rng.normal(size=(S, B)))
    gradient = check_gradients(lambda t, q: step(q, mpo.positive(t), 0.1)[1], f32(0.3), q)
    assert gradient[0] != 0.0
    assert np.count_nonzero(gradient[1]) == 0


def test_categorical_temperature_gradients_agree(rng):
    q, logits = f32(rng.normal(size=(B, A))), f32(rng.normal(size=(B, A)))
    check_gradients(
        lambda t, q, x: mpo.categorical_e_step(q, Categorical(x).log_probs(), mpo.positive(t), 0.1)[1],
        f32(0.3),
        fixed=(q, logits),
    )
