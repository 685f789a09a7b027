import numpy as np
import pytest

from starling.maths.exploration import apex_epsilon, epsilon_greedy, epsilon_greedy_probs, smoothed_action
from tests.maths.helpers import allclose, f32, rlax

pytestmark = pytest.mark.filterwarnings("ignore:Rlax:PendingDeprecationWarning")


def test_apex_epsilons_are_the_papers():
    assert apex_epsilon(0, 1) == pytest.approx(0.4)
    assert apex_epsilon(0, 8) == pytest.approx(0.4)
    assert apex_epsilon(7, 8) == pytest.approx(0.4**8)
    rates = [apex_epsilon(i, 360) for i in range(360)]
    assert rates == sorted(rates, reverse=True)


def test_below_epsilon_the_noise_says_which_action(run):
    q = f32([[0.0, 9.0, 0.0, 0.0]] * 6)
    noise = f32([0.0, 0.249, 0.251, 0.499, 0.501, 0.999])
    action = run(epsilon_greedy, q, 0.5, noise)
    assert action.dtype == np.int32
    assert action.tolist() == [0, 1, 2, 3, 1, 1]


def test_without_exploration_the_choice_is_greedy(run, rng):
    q = f32(rng.normal(size=(9, 4)))
    assert run(epsilon_greedy, q, 0.0, f32([0.0] * 9)).tolist() == q.argmax(axis=-1).tolist()
    assert set(run(epsilon_greedy, q, 1.0, f32([np.nextafter(np.float32(1), np.float32(0))] * 9)).tolist()) == {3}


def test_each_row_may_have_its_own_epsilon(run):
    q = f32([[0.0, 1.0], [0.0, 1.0]])
    assert run(epsilon_greedy, q, f32([1.0, 0.0]), f32([0.1, 0.1])).tolist() == [0, 1]


def test_choices_come_as_often_as_their_probabilities(run, rng):
    q = f32(np.tile([[0.3, 0.1, 0.5, 0.9]], (20_000, 1)))
    mask = np.tile([[True, True, True, False]], (20_000, 1))
    for m in (None, mask):
        action = run(epsilon_greedy, q, 0.4, rng.random(20_000, dtype=np.float32), m)
        frequency = [(action == a).mean() for a in range(4)]
        allclose(frequency, run(epsilon_greedy_probs, q[:1], 0.4, None if m is None else m[:1])[0], atol=0.02)


def test_probabilities_match_rlax(run, rng):
    q = f32(rng.normal(size=(5, 4)))
    allclose(run(epsilon_greedy_probs, q, 0.3), rlax.epsilon_greedy(0.3).probs(q))


def test_probabilities_are_finite_where_no_action_is_possible(run):
    found = run(epsilon_greedy_probs, f32([[1.0, 2.0]]), 0.3, np.array([[False, False]]))
    assert np.isfinite(found).all()


def test_smoothing_is_clipped_twice(run):
    action, noise = f32([[0.0, 0.0, 0.95]]), f32([[1.0, 10.0, 10.0]])
    allclose(run(smoothed_action, action, noise, 0.2, 0.5), [[0.2, 0.5, 1.0]])
