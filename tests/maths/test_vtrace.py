import jax
import numpy as np
import pytest

from starling.maths.returns import lambda_returns
from starling.maths.vtrace import vtrace
from tests.maths.helpers import allclose, check_gradients, f32, reference, rlax

T, B = 6, 3


def sequence(rng, steps=T):
    log_rho = f32(rng.normal(size=(steps, B)))
    r_t, discount_t = f32(rng.normal(size=(steps, B))), f32(0.9 * (rng.random((steps, B)) > 0.2))
    values = f32(rng.normal(size=(steps + 1, B)))
    return log_rho, r_t, discount_t, values[:-1], values[1:]


def brute_vtrace(log_rho, r_t, discount_t, v_tm1, v_t, clip_rho, clip_c, clip_pg_rho):
    """IMPALA's sum over all later steps, term by term."""
    rho = np.exp(log_rho.astype(np.float64))
    steps = len(r_t)
    targets = []
    for s in range(steps):
        target = v_tm1[s].astype(np.float64)
        weight = np.ones(B)
        for t in range(s, steps):
            delta = np.minimum(rho[t], clip_rho) * (r_t[t] + discount_t[t] * v_t[t] - v_tm1[t])
            target = target + weight * delta
            weight = weight * discount_t[t] * np.minimum(rho[t], clip_c)
        targets.append(target)
    following = np.stack([*targets[1:], v_t[-1]])
    advantages = np.minimum(rho, clip_pg_rho) * (r_t + discount_t * following - v_tm1)
    return np.stack(targets), advantages


@pytest.mark.parametrize("clips", [(1.0, 1.0, 1.0), (2.0, 1.5, 0.5)])
def test_vtrace_is_the_sum_in_the_paper(run, rng, clips):
    args = sequence(rng)
    result = run(vtrace, *args, 1.0, *clips)
    targets, advantages = brute_vtrace(*args, *clips)
    allclose(result.targets, targets)
    allclose(result.advantages, advantages)


@pytest.mark.parametrize("lambda_", [0.0, 0.9, 1.0])
def test_vtrace_matches_rlax(run, rng, lambda_):
    log_rho, r_t, discount_t, v_tm1, v_t = sequence(rng)
    result = run(vtrace, log_rho, r_t, discount_t, v_tm1, v_t, lambda_)
    arrays = (v_tm1, v_t, r_t, discount_t, np.exp(log_rho))
    expected = reference(rlax.vtrace_td_error_and_advantage, *arrays, lambda_, axis=1)
    allclose(result.targets - v_tm1, expected.errors)
    allclose(result.advantages, expected.pg_advantage)
    allclose(result.q_estimates, expected.q_estimate)


def test_on_policy_vtrace_is_the_lambda_return(run, rng):
    log_rho, r_t, discount_t, v_tm1, v_t = sequence(rng)
    result = run(vtrace, 0.0 * log_rho, r_t, discount_t, v_tm1, v_t, 0.8)
    allclose(result.targets, run(lambda_returns, r_t, discount_t, v_t, 0.8))


def test_one_step_works(run):
    # ρ = 2 clipped to 1: δ = 1 + 0.5·4 − 2 = 1
    one = [f32([[x]]) for x in (np.log(2.0), 1.0, 0.5, 2.0, 4.0)]
    result = run(vtrace, *one)
    allclose(result.targets, [[3.0]])
    allclose(result.advantages, [[1.0]])
    allclose(result.q_estimates, [[3.0]])


def test_a_cut_separates_two_episodes(run, rng):
    args = sequence(rng)
    cut_t = np.zeros((T, B), dtype=bool)
    cut_t[2] = True
    whole = run(vtrace, *args, cut_t=cut_t)
    first, second = run(vtrace, *(x[:3] for x in args)), run(vtrace, *(x[3:] for x in args))
    for name in ("targets", "advantages", "q_estimates"):
        allclose(getattr(whole, name), np.concatenate([getattr(first, name), getattr(second, name)]))


def test_no_gradient_flows_through_it(rng):
    gradients = check_gradients(lambda *args: sum(vtrace(*args)), *sequence(rng, steps=2))
    assert all(np.count_nonzero(g) == 0 for g in gradients)


def test_a_compiled_vtrace_does_not_grow_with_time():
    def program(steps):
        return jax.jit(vtrace).lower(*[np.zeros((steps, B), "f")] * 5).as_text()

    short, long = program(4), program(256)
    assert long.count("stablehlo.while") >= 1
    assert long.count("\n") == short.count("\n")
