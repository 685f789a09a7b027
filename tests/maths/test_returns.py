import jax
import numpy as np
import pytest

from starling.maths.returns import discounted_returns, gae, lambda_returns, n_step_returns
from tests.maths.helpers import allclose, check_gradients, f32, reference, rlax

T, B = 7, 3


def sequence(rng, steps=T):
    r_t = f32(rng.normal(size=(steps, B)))
    discount_t = f32(0.9 * (rng.random((steps, B)) > 0.2))
    values = f32(rng.normal(size=(steps + 1, B)))
    return r_t, discount_t, values


def brute_lambda_returns(r_t, discount_t, v_t, lambda_t):
    g = v_t[-1].astype(np.float64)
    out = []
    for t in reversed(range(len(r_t))):
        g = r_t[t] + discount_t[t] * ((1 - lambda_t[t]) * v_t[t] + lambda_t[t] * g)
        out.append(g)
    return np.stack(out[::-1])


def test_discounted_returns_by_hand(run):
    r_t, discount_t = f32([[1.0], [2.0], [3.0]]), f32([[0.5], [0.5], [0.5]])
    # 3 + 0.5·8 = 7; 2 + 0.5·7 = 5.5; 1 + 0.5·5.5 = 3.75
    allclose(run(discounted_returns, r_t, discount_t, f32([8.0])), [[3.75], [5.5], [7.0]])


def test_discounted_returns_take_a_number_for_every_discount_and_no_bootstrap(run):
    allclose(run(discounted_returns, f32([1.0, 2.0, 3.0]), 0.5), [2.75, 3.5, 3.0])


def test_discounted_returns_match_rlax(run, rng):
    r_t, discount_t, values = sequence(rng)
    expected = reference(rlax.discounted_returns, r_t, discount_t, values[1:], axis=1)
    allclose(run(discounted_returns, r_t, discount_t, values[-1]), expected)


@pytest.mark.parametrize("lambda_", [0.0, 0.7, 1.0])
def test_lambda_returns_match_rlax(run, rng, lambda_):
    r_t, discount_t, values = sequence(rng)
    expected = reference(rlax.lambda_returns, r_t, discount_t, values[1:], lambda_, axis=1)
    allclose(run(lambda_returns, r_t, discount_t, values[1:], lambda_), expected)


def test_lambda_zero_gives_one_step_targets(run, rng):
    r_t, discount_t, values = sequence(rng)
    allclose(run(lambda_returns, r_t, discount_t, values[1:], 0.0), r_t + discount_t * values[1:])


def test_lambda_may_change_from_step_to_step(run, rng):
    r_t, discount_t, values = sequence(rng)
    lambda_t = f32(rng.random((T, B)))
    expected = brute_lambda_returns(r_t, discount_t, values[1:], lambda_t)
    allclose(run(lambda_returns, r_t, discount_t, values[1:], lambda_t), expected)


def test_a_cut_keeps_the_next_episode_out_of_lambda_returns(run, rng):
    r_t, discount_t, values = sequence(rng)
    cut_t = np.zeros((T, B), dtype=bool)
    cut_t[3] = True
    whole = run(lambda_returns, r_t, discount_t, values[1:], 0.9, cut_t)
    allclose(whole[:4], run(lambda_returns, r_t[:4], discount_t[:4], values[1:5], 0.9))
    allclose(whole[4:], run(lambda_returns, r_t[4:], discount_t[4:], values[5:], 0.9))


@pytest.mark.parametrize("n", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("lambda_", [1.0, 0.8])
def test_n_step_returns_match_rlax(run, rng, n, lambda_):
    r_t, discount_t, values = sequence(rng)
    args = (r_t, discount_t, values[1:])
    expected = reference(rlax.n_step_bootstrapped_returns, *args, min(n, T), lambda_, axis=1)
    allclose(run(n_step_returns, *args, n, lambda_), expected)


def test_n_step_returns_by_hand(run):
    r_t, discount_t, v_t = f32([1.0, 2.0, 3.0]), f32([0.5, 0.5, 0.5]), f32([10.0, 20.0, 40.0])
    # 1 + .5(2 + .5·20) = 7; 2 + .5(3 + .5·40) = 13.5; 3 + .5·40 = 23
    allclose(run(n_step_returns, r_t, discount_t, v_t, 2), [7.0, 13.5, 23.0])


def test_n_step_returns_stop_at_a_cut(run):
    r_t, discount_t, v_t = f32([1.0, 2.0, 3.0]), f32([0.5, 0.5, 0.5]), f32([10.0, 20.0, 40.0])
    cut_t = np.array([True, False, False])
    # the first bootstraps from its own next value: 1 + .5·10
    allclose(run(n_step_returns, r_t, discount_t, v_t, 2, cut_t=cut_t), [6.0, 13.5, 23.0])


def test_gae_by_hand(run):
    r_t, discount_t, values = f32([1.0, 1.0]), f32([0.5, 0.5]), f32([2.0, 4.0, 6.0])
    # δ = [1 + 2 − 2, 1 + 3 − 4] = [1, 0]; A_1 = 0; A_0 = 1 + .5·.8·0
    allclose(run(gae, r_t, discount_t, values, 0.8), [1.0, 0.0])


@pytest.mark.parametrize("lambda_", [0.0, 0.95, 1.0])
def test_gae_matches_rlax(run, rng, lambda_):
    r_t, discount_t, values = sequence(rng)
    expected = reference(rlax.truncated_generalized_advantage_estimation, r_t, discount_t, lambda_, values, axis=1)
    allclose(run(gae, r_t, discount_t, values, lambda_), expected)


def test_gae_plus_values_is_the_lambda_return(run, rng):
    r_t, discount_t, values = sequence(rng)
    targets = run(gae, r_t, discount_t, values, 0.9) + values[:-1]
    allclose(targets, run(lambda_returns, r_t, discount_t, values[1:], 0.9))


def test_gae_across_a_cut_is_gae_of_both_episodes(run, rng):
    r_t, discount_t, values = sequence(rng)
    cut_t = np.zeros((T, B), dtype=bool)
    cut_t[2] = True
    v_cut_t = f32(rng.normal(size=(T, B)))  # the value of the observation the first episode ended with
    whole = run(gae, r_t, discount_t, values, 0.9, cut_t, v_cut_t)
    first_values = np.concatenate([values[:3], v_cut_t[2:3]])
    allclose(whole[:3], run(gae, r_t[:3], discount_t[:3], first_values, 0.9))
    allclose(whole[3:], run(gae, r_t[3:], discount_t[3:], values[3:], 0.9))


def test_gae_cut_without_its_own_values_bootstraps_from_the_next(run):
    r_t, discount_t, values = f32([1.0, 1.0]), f32([0.5, 0.5]), f32([2.0, 4.0, 10.0])
    # δ = [1, 2]; the cut keeps A_1 = 2 out of A_0
    allclose(run(gae, r_t, discount_t, values, 1.0, np.array([True, False])), [1.0, 2.0])


def test_one_step_works_everywhere(run, rng):
    r_t, discount_t, values = sequence(rng, steps=1)
    one_step = r_t + discount_t * values[1:]
    allclose(run(discounted_returns, r_t, discount_t, values[-1]), one_step)
    allclose(run(lambda_returns, r_t, discount_t, values[1:], 0.7), one_step)
    allclose(run(n_step_returns, r_t, discount_t, values[1:], 5), one_step)
    allclose(run(gae, r_t, discount_t, values, 0.7), one_step - values[:-1])


def test_trailing_axes_are_carried_along(run, rng):
    r_t, discount_t, values = sequence(rng)
    deep = run(gae, *(np.stack([x, x], axis=-1) for x in (r_t, discount_t, values)), 0.9)
    allclose(deep[..., 1], run(gae, r_t, discount_t, values, 0.9))


def test_gradients_agree(rng):
    r_t, _, values = sequence(rng, steps=4)
    check_gradients(lambda r, v: gae(r, 0.9 + 0.0 * r, v, 0.9) ** 2, r_t, values)
    check_gradients(lambda r, v: n_step_returns(r, 0.9 + 0.0 * r, v[1:], 2) ** 2, r_t, values)


@pytest.mark.parametrize("name", ["gae", "lambda_returns", "discounted_returns"])
def test_a_compiled_recurrence_does_not_grow_with_time(name):
    calls = {
        "gae": lambda r, v: gae(r, 0.9 + 0.0 * r, v, 0.9),
        "lambda_returns": lambda r, v: lambda_returns(r, 0.9 + 0.0 * r, v[1:], 0.9),
        "discounted_returns": lambda r, v: discounted_returns(r, 0.9, v[-1]),
    }

    def program(steps):
        return jax.jit(calls[name]).lower(np.zeros((steps, B), "f"), np.zeros((steps + 1, B), "f")).as_text()

    short, long = program(4), program(256)
    assert long.count("stablehlo.while") >= 1
    assert long.count("\n") == short.count("\n")


def test_n_step_returns_compile_to_a_program_that_does_not_grow_with_time():
    def equations(steps):
        x = np.zeros((steps, B), "f")
        return len(jax.make_jaxpr(lambda r, d, v: n_step_returns(r, d, v, 5))(x, x, x).eqns)

    assert equations(256) == equations(8)
