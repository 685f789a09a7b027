import numpy as np
import pytest

from starling.maths import distributional as d
from tests.maths.helpers import allclose, check_gradients, f32, i32, reference, rlax

pytestmark = pytest.mark.filterwarnings("ignore:Rlax:PendingDeprecationWarning")
B, A, N = 4, 3, 11
ATOMS = f32(np.linspace(-5, 5, N))


@pytest.fixture
def batch(rng):
    return i32(rng.integers(A, size=B)), f32(2 * rng.normal(size=B)), f32([0.9, 0.0, 0.5, 1.0])


def pairs(rng, size=N):
    return f32(rng.normal(size=(B, A, size))), f32(rng.normal(size=(B, A, size)))


def test_of_action_picks_the_row(run, rng):
    x, _ = pairs(rng)
    action = i32([2, 0, 1, 1])
    allclose(run(d.of_action, x, action), x[np.arange(B), action])


def test_a_projection_by_hand(run):
    atoms = f32([0.0, 1.0, 2.0])
    # 0.25 at 0.5 is halved; 0.5 at −3 and 0.25 at 9 go to the ends
    result = run(d.categorical_projection, f32([[0.5, -3.0, 9.0]]), f32([[0.25, 0.5, 0.25]]), atoms)
    allclose(result, [[0.625, 0.125, 0.25]])


def test_projections_match_rlax_and_keep_mass_and_mean(run, rng):
    z = f32(rng.uniform(-4.9, 4.9, size=(B, 7)))
    probs = f32(rng.dirichlet(np.ones(7), size=B))
    result = run(d.categorical_projection, z, probs, ATOMS)
    allclose(result, reference(lambda z, p: rlax.categorical_l2_project(z, p, ATOMS), z, probs), atol=1e-5)
    allclose(result.sum(axis=-1), np.ones(B))
    allclose((result * ATOMS).sum(axis=-1), (z * probs).sum(axis=-1), atol=1e-5)


def test_categorical_value_is_the_mean(run):
    allclose(
        run(d.categorical_value, f32(np.log([[0.25, 0.5, 0.25], [0.1, 0.1, 0.8]])), f32([0.0, 1.0, 2.0])), [1.0, 1.7]
    )


def test_categorical_losses_match_rlax(run, rng, batch):
    _, r_t, discount_t = batch
    before, after = pairs(rng)
    selector = f32(rng.normal(size=(B, A)))
    expected = reference(
        lambda x, a, r, discount, y: rlax.categorical_q_learning(ATOMS, x, a, r, discount, ATOMS, y),
        *(before, *batch, after),
    )
    allclose(run(d.categorical_q_loss, before, *batch, after, ATOMS), expected, rtol=1e-4)
    expected = reference(
        lambda x, a, r, discount, y, q: rlax.categorical_double_q_learning(ATOMS, x, a, r, discount, ATOMS, y, q),
        *(before, *batch, after, selector),
    )
    allclose(run(d.categorical_q_loss, before, *batch, after, ATOMS, selector), expected, rtol=1e-4)
    expected = reference(
        lambda x, r, discount, y: rlax.categorical_td_learning(ATOMS, x, r, discount, ATOMS, y),
        *(before[:, 0], r_t, discount_t, after[:, 0]),
    )
    allclose(run(d.categorical_loss, before[:, 0], r_t, discount_t, after[:, 0], ATOMS), expected, rtol=1e-4)


def test_quantile_midpoints(run):
    allclose(run(d.quantile_midpoints, f32(np.zeros((2, 4)))), [[0.125, 0.375, 0.625, 0.875]] * 2)


@pytest.mark.parametrize("kappa", [0.0, 0.5, 1.0])
def test_the_quantile_loss_matches_rlax(run, rng, kappa):
    quantiles, target = f32(rng.normal(size=(B, 5))), f32(2 * rng.normal(size=(B, 7)))
    tau = f32(rng.random((B, 5)))
    expected = reference(rlax.quantile_regression_loss, quantiles, tau, target, kappa)
    allclose(run(d.quantile_loss, quantiles, tau, target, kappa), expected / (kappa or 1.0), rtol=1e-4)


def test_the_quantile_q_loss_matches_rlax(run, rng, batch):
    before, after = f32(rng.normal(size=(B, A, 5))), f32(rng.normal(size=(B, A, 8)))
    tau = f32(rng.random((B, 5)))
    expected = reference(
        lambda x, tau, a, r, discount, y: rlax.quantile_q_learning(x.T, tau, a, r, discount, y.T, y.T, 1.0),
        *(before, tau, *batch, after),
    )
    allclose(run(d.quantile_q_loss, before, tau, *batch, after), expected, rtol=1e-4)


def test_the_quantile_loss_is_least_at_the_quantiles(run, rng):
    samples = f32(rng.normal(size=(1, 2001)))
    tau = f32([[0.1, 0.5, 0.9]])
    right = f32(np.quantile(samples, tau[0]))[None]
    least = run(d.quantile_loss, right, tau, samples, 0.0)
    for shift in (-0.2, 0.2):
        assert run(d.quantile_loss, right + np.float32(shift), tau, samples, 0.0) > least


def test_gradients_agree_and_targets_have_none(rng, batch):
    before, after = pairs(rng)

    def categorical(x, y, a, r, discount, atoms):
        return d.categorical_q_loss(x, a, r, discount, y, atoms)

    def quantile(x, y, a, r, discount, tau):
        return d.quantile_q_loss(x, tau, a, r, discount, y)

    tau = f32(np.broadcast_to((np.arange(N) + 0.5) / N, (B, N)))
    for loss, last in ((categorical, ATOMS), (quantile, tau)):
        gradients = check_gradients(loss, before, after, fixed=(*batch, last))
        assert [np.count_nonzero(g) > 0 for g in gradients] == [True, False]
