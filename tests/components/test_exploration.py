import numpy as np
import pytest

from starling.backends import get_backend
from starling.components.networks.exploration import Boltzmann, EpsilonGreedy, GaussianNoise, OrnsteinUhlenbeck
from starling.components.schedules import Constant, LinearSchedule
from starling.core.errors import ConfigError
from tests.components.building import BACKENDS, assert_same

rng = np.random.default_rng(29)
Q = rng.standard_normal((4000, 3)).astype(np.float32)
NOISE = rng.random(4000).astype(np.float32)
MASK = rng.random((4000, 3)) < 0.5
MASK[~MASK.any(-1), 0] = True


def on_all(fn, *args):
    results = [get_backend(name).to_numpy(get_backend(name).compile(fn)(*args)) for name in BACKENDS]
    assert_same(*results, tolerance=1e-5)
    return results[0]


def test_epsilon_greedy_takes_the_best_action_but_for_a_share_of_epsilon():
    action = on_all(EpsilonGreedy(Constant(0.3)), Q, NOISE)
    best = Q.argmax(-1)
    assert action.dtype == np.int32
    assert (action[NOISE >= 0.3] == best[NOISE >= 0.3]).all()
    # Of the 30 % explored a third meets the best action.
    assert np.mean(action == best) == pytest.approx(0.7 + 0.1, abs=0.02)
    np.testing.assert_allclose(np.bincount(action[NOISE < 0.3]) / (NOISE < 0.3).sum(), 1 / 3, atol=0.04)


@pytest.mark.parametrize("explorer", [EpsilonGreedy(Constant(0.5)), Boltzmann(Constant(2.0))])
def test_impossible_actions_are_never_taken(explorer):
    action = on_all(lambda q, noise, mask: explorer(q, noise, 0.0, mask), Q, NOISE, MASK)
    assert MASK[np.arange(4000), action].all()
    assert len(set(action)) == 3


def test_greedy_means_the_best_of_the_possible():
    action = on_all(lambda q, noise, mask: EpsilonGreedy(Constant(0.0))(q, noise, 0.0, mask), Q, NOISE, MASK)
    np.testing.assert_array_equal(action, np.where(MASK, Q, -np.inf).argmax(-1))


def test_epsilon_follows_its_schedule_inside_compiled_code():
    explorer = EpsilonGreedy(LinearSchedule(1.0, 0.0, over=0.5))

    def share(progress):
        return np.mean(on_all(explorer, Q, NOISE, np.array(progress, np.float32)) == Q.argmax(-1))

    assert share(0) == pytest.approx(1 / 3, abs=0.03)
    assert share(0.25) == pytest.approx(2 / 3, abs=0.03)
    assert share(0.5) == 1.0


def test_boltzmann_draws_in_proportion_to_exponentials():
    q = np.tile(np.array([0.0, 1.0, 2.0], np.float32), (20_000, 1))
    action = on_all(Boltzmann(Constant(0.5)), q, ((np.arange(20_000) + 0.5) / 20_000).astype(np.float32))
    weights = np.exp(np.array([0.0, 2.0, 4.0]))
    np.testing.assert_allclose(np.bincount(action) / 20_000, weights / weights.sum(), atol=1e-3)


def test_a_low_temperature_is_greedy():
    np.testing.assert_array_equal(on_all(Boltzmann(Constant(1e-4)), Q, NOISE), Q.argmax(-1))


def test_gaussian_noise_is_scaled_clipped_and_kept_within_bounds():
    action = np.array([[0.0, 0.5, 0.9, -0.9]], np.float32)
    noise = np.array([[1.0, -1.0, 5.0, -5.0]], np.float32)
    found = on_all(GaussianNoise(Constant(0.1)), action, noise)
    np.testing.assert_allclose(found, [[0.1, 0.4, 1.0, -1.0]], rtol=1e-6)
    found = on_all(GaussianNoise(Constant(1.0), clip=0.2, low=-2.0, high=2.0), action, noise)
    np.testing.assert_allclose(found, [[0.2, 0.3, 1.1, -1.1]], rtol=1e-6)


def test_ornstein_uhlenbeck_by_hand():
    process = OrnsteinUhlenbeck(theta=0.5, sigma=0.2, dt=0.25)
    action, noise = np.zeros((2, 1), np.float32), np.array([[1.0], [-1.0]], np.float32)
    # x' = x (1 − 0.125) + 0.2 · 0.5 · noise
    noisy, state = on_all(process, action, np.full((2, 1), 0.8, np.float32), noise)
    np.testing.assert_allclose(state, [[0.8], [0.6]], rtol=1e-6)
    np.testing.assert_array_equal(noisy, state)
    _, state = on_all(process, action, state, noise, np.array([True, False]))
    np.testing.assert_allclose(state, [[0.1], [0.425]], rtol=1e-6)


def test_ornstein_uhlenbeck_settles_at_its_stationary_variance():
    process = OrnsteinUhlenbeck(theta=0.15, sigma=0.2)
    action = np.zeros((2000, 1), np.float32)
    state = process.initial(action)
    for _ in range(100):
        _, state = process(action, state, rng.standard_normal((2000, 1)).astype(np.float32))
    assert state.std() == pytest.approx(0.2 / np.sqrt(1 - 0.85**2), rel=0.05)


def test_noise_that_would_grow_without_bound_is_refused():
    with pytest.raises(ConfigError, match=r"theta=3\.0"):
        OrnsteinUhlenbeck(theta=3.0)
