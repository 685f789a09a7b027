import numpy as np
import pytest
from scipy import integrate, stats

from starling.maths.gaussians import Gaussian, TanhGaussian, log_one_minus_tanh_squared
from tests.maths.helpers import allclose, check_gradients, f32

B, D = 4, 3


@pytest.fixture
def arrays(rng):
    return f32(rng.normal(size=(B, D))), f32(0.5 * rng.normal(size=(B, D))), f32(rng.normal(size=(B, D)))


def test_gaussian_numbers_match_scipy(run, arrays, rng):
    mean, log_std, action = arrays
    normal = stats.norm(mean.astype(np.float64), np.exp(log_std.astype(np.float64)))
    allclose(run(lambda m, s, a: Gaussian(m, s).log_prob(a), *arrays), normal.logpdf(action).sum(axis=-1))
    allclose(run(lambda m, s: Gaussian(m, s).entropy(), mean, log_std), normal.entropy().sum(axis=-1))


def test_gaussian_kl_is_its_integral(run):
    p, q = stats.norm(0.3, 0.5), stats.norm(-0.2, 0.8)
    expected = integrate.quad(lambda x: p.pdf(x) * (p.logpdf(x) - q.logpdf(x)), -5, 5)[0]
    args = [f32([[x]]) for x in (0.3, np.log(0.5), -0.2, np.log(0.8))]
    allclose(run(lambda m, s, n, t: Gaussian(m, s).kl(Gaussian(n, t)), *args), [expected], rtol=1e-4)


def test_the_divergence_of_nearly_equal_gaussians_is_not_lost_in_rounding(run):
    # for σ' = σ·e^h it is h + (e^(−2h) − 1) / 2 ≈ h²
    args = [f32([[x]]) for x in (0.0, 0.0, 0.0, 1e-2)]
    kl = run(lambda m, s, n, t: Gaussian(m, s).kl(Gaussian(n, t)), *args)
    allclose(kl, [1e-2 + 0.5 * np.expm1(-2e-2)], rtol=1e-3)


def test_gaussian_samples_are_mean_plus_noise(run, arrays):
    mean, log_std, noise = arrays
    action, log_prob = run(lambda m, s, e: Gaussian(m, s).sample_with_log_prob(e), *arrays)
    allclose(action, mean + np.exp(log_std) * noise)
    allclose(log_prob, run(lambda m, s, a: Gaussian(m, s).log_prob(a), mean, log_std, action), rtol=1e-4)
    allclose(run(lambda m, s: Gaussian(m, s).mode(), mean, log_std), mean)


def test_one_log_std_for_the_whole_batch_gives_one_number_per_element(run, arrays):
    mean, log_std, action = arrays
    shared = log_std[0]
    whole = np.broadcast_to(shared, mean.shape).copy()
    for cls in (Gaussian, TanhGaussian):
        for fn in (
            lambda m, s, a, cls=cls: cls(m, s).entropy(),
            lambda m, s, a, cls=cls: cls(m, s).sample_with_log_prob(a)[1],
            lambda m, s, a, cls=cls: cls(m, s).kl(cls(0.5 * m, 0.5 * s)),
        ):
            result = run(fn, mean, shared, action)
            assert result.shape == (B,)
            allclose(result, run(fn, mean, whole, action))


def test_tanh_gaussian_density_integrates_to_one_and_matches_its_samples(run, arrays):
    grid = f32(np.linspace(-0.9999, 0.9999, 20001))[:, None]
    mean, log_std = f32([0.3]), f32([-0.7])
    log_prob = run(lambda m, s, a: TanhGaussian(m, s).log_prob(a), mean, log_std, grid)
    allclose(integrate.trapezoid(np.exp(log_prob), grid[:, 0]), 1.0, rtol=1e-3)
    action, log_prob = run(lambda m, s, e: TanhGaussian(m, s).sample_with_log_prob(e), *arrays)
    assert (np.abs(action) < 1).all()
    again = run(lambda m, s, a: TanhGaussian(m, s).log_prob(a), *arrays[:2], action)
    allclose(log_prob, again, rtol=1e-2, atol=1e-3)


def test_tanh_gaussian_log_prob_is_right_where_the_action_rounds_to_one(run):
    mean, log_std, noise = f32([[20.0]]), f32([[0.0]]), f32([[0.5]])
    action, log_prob = run(lambda m, s, e: TanhGaussian(m, s).sample_with_log_prob(e), mean, log_std, noise)
    assert action == 1.0
    # log(1 − tanh²(u)) → log 4 − 2u
    allclose(log_prob, stats.norm.logpdf(0.5) - (np.log(4) - 2 * 20.5))


def test_log_prob_at_the_edge_is_finite(run):
    args = f32([[0.0]]), f32([[0.0]]), f32([[1.0]])
    assert np.isfinite(run(lambda m, s, a: TanhGaussian(m, s).log_prob(a), *args)).all()


def test_the_logarithm_of_the_slope_matches_double_precision(run):
    u = np.linspace(-15, 15, 61)
    allclose(run(log_one_minus_tanh_squared, f32(u)), np.log(4.0) - 2 * np.logaddexp(u, -u), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("mean", "std"), [(0.0, 0.3), (0.7, 1.0), (-2.0, 2.0), (0.0, 5.0)])
def test_tanh_gaussian_entropy_is_its_integral(run, mean, std):
    normal = stats.norm(mean, std)
    slope = lambda u: np.log(4.0) - 2 * np.logaddexp(u, -u)  # noqa: E731
    low, high = mean - 9 * std, mean + 9 * std
    expected = normal.entropy() + integrate.quad(lambda u: normal.pdf(u) * slope(u), low, high, limit=200)[0]
    entropy = run(lambda m, s: TanhGaussian(m, s).entropy(), f32([[mean]]), f32([[np.log(std)]]))
    allclose(entropy, [expected], rtol=1e-2, atol=3e-4)


def test_squashing_both_leaves_their_divergence(run, arrays):
    mean, log_std, other = arrays
    plain = run(lambda m, s, o: Gaussian(m, s).kl(Gaussian(o, 0.5 * s)), mean, log_std, other)
    allclose(run(lambda m, s, o: TanhGaussian(m, s).kl(TanhGaussian(o, 0.5 * s)), mean, log_std, other), plain)


def test_gradients_agree(arrays):
    mean, log_std, noise = arrays

    def reparameterised(m, s, e):
        action, log_prob = TanhGaussian(m, s).sample_with_log_prob(e)
        return 0.2 * log_prob - (action**2).sum(-1)

    check_gradients(reparameterised, mean, log_std, fixed=(noise,))
    check_gradients(lambda m, s: TanhGaussian(m, s).entropy(), mean, log_std)
    check_gradients(lambda m, s, a: Gaussian(m, s).log_prob(a), mean, log_std, fixed=(noise,))
    check_gradients(lambda m, s, o: Gaussian(m, s).kl(Gaussian(o, 0.5 * s)), mean, log_std, noise)


def test_noise_is_described(arrays):
    for cls in (Gaussian, TanhGaussian):
        policy = cls(arrays[0], arrays[1])
        assert (policy.noise_kind, policy.noise_shape) == ("normal", (B, D))
