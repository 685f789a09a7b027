import jax
import numpy as np
import pytest

from starling.maths import td
from tests.maths.helpers import allclose, check_gradients, f32, i32, reference, rlax

T, B, A = 5, 3, 4


@pytest.fixture
def batch(rng):
    return {
        "q_tm1": f32(rng.normal(size=(B, A))),
        "a_tm1": i32(rng.integers(A, size=B)),
        "r_t": f32(rng.normal(size=B)),
        "discount_t": f32([0.9, 0.0, 0.5]),
        "q_t": f32(rng.normal(size=(B, A))),
    }


@pytest.fixture
def sequence(rng):
    return {
        "q_tm1": f32(rng.normal(size=(T, B, A))),
        "a_tm1": i32(rng.integers(A, size=(T, B))),
        "r_t": f32(rng.normal(size=(T, B))),
        "discount_t": f32(0.9 * (rng.random((T, B)) > 0.2)),
        "q_t": f32(rng.normal(size=(T, B, A))),
        "a_t": i32(rng.integers(A, size=(T, B))),
    }


def per_column(fn, *args):
    return reference(fn, *args, axis=1)


def test_huber_by_hand_and_against_rlax(run, rng):
    allclose(run(td.huber, f32([-3.0, -1.0, 0.0, 0.5, 2.0])), [2.5, 0.5, 0.0, 0.125, 1.5])
    x = f32(3 * rng.normal(size=50))
    allclose(run(td.huber, x, 0.7), rlax.huber_loss(x, 0.7))


def test_td_error_by_hand(run):
    allclose(run(td.td_error, f32([1.0, 2.0]), f32([3.0, 4.0]), f32([0.5, 0.0]), f32([6.0, 7.0])), [5.0, 2.0])


@pytest.mark.parametrize("lambda_", [0.0, 0.6])
def test_td_lambda_error_matches_rlax(run, rng, sequence, lambda_):
    v_tm1, v_t = f32(rng.normal(size=(T, B))), f32(rng.normal(size=(T, B)))
    r_t, discount_t = sequence["r_t"], sequence["discount_t"]
    expected = per_column(rlax.td_lambda, v_tm1, r_t, discount_t, v_t, lambda_)
    allclose(run(td.td_lambda_error, v_tm1, r_t, discount_t, v_t, lambda_), expected)


def test_q_learning_error_by_hand_and_against_rlax(run, batch):
    error = run(td.q_learning_error, f32([[1.0, 2.0]]), i32([1]), f32([1.0]), f32([0.5]), f32([[4.0, 8.0]]))
    allclose(error, [3.0])
    expected = reference(rlax.q_learning, *batch.values())
    allclose(run(td.q_learning_error, **batch), expected)


def test_double_q_error_matches_rlax(run, rng, batch):
    selector = f32(rng.normal(size=(B, A)))
    expected = reference(rlax.double_q_learning, *batch.values(), selector)
    allclose(run(td.double_q_error, **batch, q_t_selector=selector), expected)


def test_sarsa_errors_match_rlax(run, rng, batch):
    a_t = i32(rng.integers(A, size=B))
    pi_t = f32(rng.dirichlet(np.ones(A), size=B))
    expected = reference(rlax.sarsa, *batch.values(), a_t)
    allclose(run(td.sarsa_error, **batch, a_t=a_t), expected)
    expected = reference(rlax.expected_sarsa, *batch.values(), pi_t)
    allclose(run(td.expected_sarsa_error, **batch, pi_t=pi_t), expected)


def test_errors_take_time_and_batch_together(run, rng, sequence):
    whole = run(td.q_learning_error, **{k: sequence[k] for k in ("q_tm1", "a_tm1", "r_t", "discount_t", "q_t")})
    assert whole.shape == (T, B)
    first = run(td.q_learning_error, **{k: sequence[k][0] for k in ("q_tm1", "a_tm1", "r_t", "discount_t", "q_t")})
    allclose(whole[0], first)


@pytest.mark.parametrize("lambda_", [0.0, 0.8, 1.0])
def test_sarsa_lambda_and_q_lambda_match_rlax(run, sequence, lambda_):
    q_tm1, a_tm1, r_t, discount_t, q_t, a_t = sequence.values()
    expected = per_column(rlax.sarsa_lambda, q_tm1, a_tm1, r_t, discount_t, q_t, a_t, lambda_)
    allclose(run(td.sarsa_lambda_error, q_tm1, a_tm1, r_t, discount_t, q_t, a_t, lambda_), expected)
    expected = per_column(rlax.q_lambda, q_tm1, a_tm1, r_t, discount_t, q_t, lambda_)
    allclose(run(td.q_lambda_error, q_tm1, a_tm1, r_t, discount_t, q_t, lambda_), expected)


@pytest.mark.parametrize("lambda_", [0.0, 0.9, 1.0])
def test_retrace_matches_rlax(run, rng, sequence, lambda_):
    q_tm1, a_tm1, r_t, discount_t, q_t, a_t = sequence.values()
    pi_t, mu_t = f32(rng.dirichlet(np.ones(A), size=(T, B))), f32(0.1 + 0.9 * rng.random((T, B)))
    expected = per_column(rlax.retrace, q_tm1, q_t, a_tm1, a_t, r_t, discount_t, pi_t, mu_t, lambda_)
    allclose(run(td.retrace_error, q_tm1, a_tm1, r_t, discount_t, q_t, a_t, pi_t, mu_t, lambda_), expected)


def test_retrace_does_not_see_past_a_cut(run, rng, sequence):
    names = ("q_tm1", "a_tm1", "r_t", "discount_t", "q_t", "a_t")
    pi_t, mu_t = f32(rng.dirichlet(np.ones(A), size=(T, B))), f32(np.full((T, B), 0.3))
    cut_t = np.zeros((T, B), dtype=bool)
    cut_t[1] = True
    whole = run(td.retrace_error, *(sequence[k] for k in names), pi_t, mu_t, 0.9, cut_t)
    first = run(td.retrace_error, *(sequence[k][:2] for k in names), pi_t[:2], mu_t[:2], 0.9)
    allclose(whole[:2], first)


def test_sequence_errors_of_one_step_are_one_step_errors(run, rng, sequence):
    one = {k: x[:1] for k, x in sequence.items()}
    q_tm1, a_tm1, r_t, discount_t, q_t, a_t = one.values()
    pi_t, mu_t = f32(rng.dirichlet(np.ones(A), size=(1, B))), f32(np.full((1, B), 0.3))
    expected = run(td.expected_sarsa_error, q_tm1, a_tm1, r_t, discount_t, q_t, pi_t)
    allclose(run(td.retrace_error, q_tm1, a_tm1, r_t, discount_t, q_t, a_t, pi_t, mu_t, 0.9), expected)
    expected = run(td.q_learning_error, q_tm1, a_tm1, r_t, discount_t, q_t)
    allclose(run(td.q_lambda_error, q_tm1, a_tm1, r_t, discount_t, q_t, 0.9), expected)


def test_soft_q_target_by_hand(run):
    # 1 + 0.9·(5 − 0.2·(−2)) = 5.86
    target = run(td.soft_q_target, f32([1.0, 1.0]), f32([0.9, 0.0]), f32([5.0, 5.0]), f32([-2.0, -2.0]), 0.2)
    allclose(target, [5.86, 1.0])


def test_soft_value_lies_between_the_maximum_and_the_maximum_plus_the_largest_entropy(run, rng):
    q = f32(rng.normal(size=(B, A)))
    allclose(run(td.soft_value, q, 0.5), 0.5 * np.log(np.exp(q / 0.5).sum(axis=-1)))
    allclose(run(td.soft_value, q, 1e-4), q.max(axis=-1), atol=1e-3)


def test_munchausen_reward_by_hand(run):
    reward = run(td.munchausen_reward, f32([1.0, 1.0]), f32([-2.0, -1e4]), temperature=0.1, scale=0.9)
    allclose(reward, [1.0 - 0.18, 1.0 - 0.9])


@pytest.mark.parametrize("n", [1, 3])
def test_transformed_n_step_q_error_matches_rlax(run, rng, n):
    q_tm1, q_t = f32(rng.normal(size=(T, A))), f32(rng.normal(size=(T, A)))
    a_tm1, a_t = i32(rng.integers(A, size=T)), i32(rng.integers(A, size=T))
    r_t, discount_t = f32(rng.normal(size=T)), f32(np.full(T, 0.9))
    pair = rlax.SIGNED_HYPERBOLIC_PAIR
    expected = rlax.transformed_n_step_q_learning(q_tm1, a_tm1, q_t, a_t, r_t, discount_t, n, tx_pair=pair)
    actual = run(td.transformed_n_step_q_error, q_tm1, a_tm1, r_t, discount_t, q_t, a_t, n)
    allclose(actual, expected, atol=1e-3)  # its inverse loses digits in float32


def test_no_gradient_flows_into_targets_and_the_rest_agree(batch, rng):
    def loss(q_tm1, q_t, a_tm1, r_t, discount_t, selector):
        return td.huber(td.double_q_error(q_tm1, a_tm1, r_t, discount_t, q_t, selector))

    fixed = (batch["a_tm1"], batch["r_t"], batch["discount_t"], f32(rng.normal(size=(B, A))))
    gradient_tm1, gradient_t = check_gradients(loss, batch["q_tm1"], batch["q_t"], fixed=fixed)
    assert np.count_nonzero(gradient_tm1) == B
    assert np.count_nonzero(gradient_t) == 0


def test_sequence_errors_have_the_gradient_of_minus_the_prediction(rng, sequence):
    def loss(q_tm1, q_t, a_tm1, r_t, discount_t, a_t, pi_t, mu_t):
        retrace = td.retrace_error(q_tm1, a_tm1, r_t, discount_t, q_t, a_t, pi_t, mu_t, 0.9)
        return retrace + td.q_lambda_error(q_tm1, a_tm1, r_t, discount_t, q_t, 0.9)

    pi_t, mu_t = f32(rng.dirichlet(np.ones(A), size=(T, B))), f32(np.full((T, B), 0.3))
    fixed = [sequence[k] for k in ("a_tm1", "r_t", "discount_t", "a_t")] + [pi_t, mu_t]
    gradient_tm1, gradient_t = check_gradients(loss, sequence["q_tm1"], sequence["q_t"], fixed=fixed)
    allclose(gradient_tm1, -2.0 / (T * B) * np.eye(A)[sequence["a_tm1"]], atol=1e-4)
    assert np.count_nonzero(gradient_t) == 0


def test_compiled_retrace_does_not_grow_with_time():
    def equations(steps):
        q, x = np.zeros((steps, B, A), "f"), np.zeros((steps, B), "f")
        a = np.zeros((steps, B), np.int32)
        return len(jax.make_jaxpr(lambda *args: td.retrace_error(*args, 0.9))(q, a, x, x, q, a, q, x).eqns)

    assert equations(256) == equations(8)
