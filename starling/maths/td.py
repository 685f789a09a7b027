"""Temporal-difference errors and targets.

An error is target − prediction; no gradient flows into a target. ``q_tm1`` [..., A] holds the values of the actions
before the step, ``a_tm1`` [...] the action taken, ``r_t`` and ``discount_t`` [...] what it gave, ``q_t`` [..., A]
the values after it. Functions with a trace take sequences, [T, B] and [T, B, A].
"""

from __future__ import annotations

from typing import Any

from starling.backends import ops
from starling.maths.normalisation import rescale_value, unscale_value
from starling.maths.returns import lambda_returns, linear_recurrence, n_step_returns

__all__ = [
    "double_q_error",
    "expected_sarsa_error",
    "huber",
    "munchausen_reward",
    "q_lambda_error",
    "q_learning_error",
    "retrace_error",
    "retrace_targets",
    "sarsa_error",
    "sarsa_lambda_error",
    "soft_q_target",
    "soft_value",
    "td_error",
    "td_lambda_error",
    "transformed_n_step_q_error",
]


def huber(x: Any, delta: float = 1.0) -> Any:
    """½x² where |x| ≤ delta, delta · (|x| − ½delta) beyond."""
    xp = ops(x)
    size = xp.abs(x)
    inner = xp.minimum(size, delta)
    return 0.5 * inner * inner + delta * (size - inner)


def td_error(v_tm1: Any, r_t: Any, discount_t: Any, v_t: Any) -> Any:
    """δ = r_t + discount_t · v_t − v_tm1."""
    return ops(v_tm1).stop_gradient(r_t + discount_t * v_t) - v_tm1  # [B]


def td_lambda_error(v_tm1: Any, r_t: Any, discount_t: Any, v_t: Any, lambda_: Any, cut_t: Any = None) -> Any:
    """λ-return − v_tm1, for a sequence."""
    return ops(v_tm1).stop_gradient(lambda_returns(r_t, discount_t, v_t, lambda_, cut_t)) - v_tm1  # [T, B]


def q_learning_error(q_tm1: Any, a_tm1: Any, r_t: Any, discount_t: Any, q_t: Any) -> Any:
    """δ = r_t + discount_t · max_a q_t[a] − q_tm1[a_tm1]."""
    xp = ops(q_tm1)
    target = xp.stop_gradient(r_t + discount_t * xp.max(q_t, axis=-1))  # [B]
    return target - xp.take_along(q_tm1, a_tm1)  # [B]


def double_q_error(q_tm1: Any, a_tm1: Any, r_t: Any, discount_t: Any, q_t: Any, q_t_selector: Any) -> Any:
    """δ = r_t + discount_t · q_t[argmax_a q_t_selector[a]] − q_tm1[a_tm1]."""
    xp = ops(q_tm1)
    best_t = xp.argmax(q_t_selector, axis=-1)  # [B]
    target = xp.stop_gradient(r_t + discount_t * xp.take_along(q_t, best_t))  # [B]
    return target - xp.take_along(q_tm1, a_tm1)  # [B]


def sarsa_error(q_tm1: Any, a_tm1: Any, r_t: Any, discount_t: Any, q_t: Any, a_t: Any) -> Any:
    """δ = r_t + discount_t · q_t[a_t] − q_tm1[a_tm1]."""
    xp = ops(q_tm1)
    target = xp.stop_gradient(r_t + discount_t * xp.take_along(q_t, a_t))  # [B]
    return target - xp.take_along(q_tm1, a_tm1)  # [B]


def expected_sarsa_error(q_tm1: Any, a_tm1: Any, r_t: Any, discount_t: Any, q_t: Any, pi_t: Any) -> Any:
    """δ = r_t + discount_t · Σ_a pi_t[a] · q_t[a] − q_tm1[a_tm1]."""
    xp = ops(q_tm1)
    target = xp.stop_gradient(r_t + discount_t * xp.sum(pi_t * q_t, axis=-1))  # [B]
    return target - xp.take_along(q_tm1, a_tm1)  # [B]


def sarsa_lambda_error(q_tm1: Any, a_tm1: Any, r_t: Any, discount_t: Any, q_t: Any, a_t: Any, lambda_: Any) -> Any:
    """λ-return of q_t[a_t] − q_tm1[a_tm1], for a sequence."""
    xp = ops(q_tm1)
    target = xp.stop_gradient(lambda_returns(r_t, discount_t, xp.take_along(q_t, a_t), lambda_))  # [T, B]
    return target - xp.take_along(q_tm1, a_tm1)  # [T, B]


def q_lambda_error(q_tm1: Any, a_tm1: Any, r_t: Any, discount_t: Any, q_t: Any, lambda_: Any, cut_t: Any = None) -> Any:
    """λ-return of max_a q_t[a] − q_tm1[a_tm1]: Peng's Q(λ), or Watkins' where λ [T, B] is 0 at exploring actions."""
    xp = ops(q_tm1)
    target = xp.stop_gradient(lambda_returns(r_t, discount_t, xp.max(q_t, axis=-1), lambda_, cut_t))  # [T, B]
    return target - xp.take_along(q_tm1, a_tm1)  # [T, B]


def retrace_targets(qa_t: Any, v_t: Any, r_t: Any, discount_t: Any, c_t: Any) -> Any:
    """G_t = r_t + discount_t · (v_t − c_t · qa_t + c_t · G_{t+1}), and r_t + discount_t · v_t at the last step.

    ``qa_t`` is the value of the action taken next, ``v_t`` the expected value under the target policy, ``c_t`` the
    trace, all [T, B]; set ``c_t`` to zero where the episode was cut. The last ``c_t`` and ``qa_t`` are not used.
    """
    xp = ops(r_t)
    last = r_t[-1:, ...] + discount_t[-1:, ...] * v_t[-1:, ...]  # [1, B]
    if r_t.shape[0] == 1:
        return last
    r, discount, c = r_t[:-1, ...], discount_t[:-1, ...], c_t[:-1, ...]  # [T-1, B]
    addend = r + discount * (v_t[:-1, ...] - c * qa_t[:-1, ...])
    return xp.concat([linear_recurrence(addend, discount * c, last[0, ...]), last], axis=0)  # [T, B]


def retrace_error(
    q_tm1: Any,
    a_tm1: Any,
    r_t: Any,
    discount_t: Any,
    q_t: Any,
    a_t: Any,
    pi_t: Any,
    mu_t: Any,
    lambda_: Any,
    cut_t: Any = None,
) -> Any:
    """Retrace(λ) target − q_tm1[a_tm1], with c_t = λ · min(1, pi_t[a_t] / mu_t).

    ``pi_t`` [T, B, A] are the target policy's probabilities, ``mu_t`` [T, B] the behaviour's of the action it took.
    """
    xp = ops(q_tm1)
    c_t = lambda_ * xp.minimum(xp.take_along(pi_t, a_t) / (mu_t + 1e-8), 1.0)  # [T, B]
    if cut_t is not None:
        c_t = c_t * (1.0 - xp.astype(cut_t, c_t.dtype))
    v_t = xp.sum(pi_t * q_t, axis=-1)  # [T, B]
    target = xp.stop_gradient(retrace_targets(xp.take_along(q_t, a_t), v_t, r_t, discount_t, c_t))
    return target - xp.take_along(q_tm1, a_tm1)  # [T, B]


def soft_q_target(r_t: Any, discount_t: Any, q_t: Any, log_prob_t: Any, temperature: Any) -> Any:
    """r_t + discount_t · (q_t − temperature · log π(a_t)); ``q_t`` is already the least of the critics."""
    return ops(r_t).stop_gradient(r_t + discount_t * (q_t - temperature * log_prob_t))  # [B]


def soft_value(q: Any, temperature: Any) -> Any:
    """temperature · log Σ_a exp(q[a] / temperature): the value of the softmax policy, entropy included."""
    return temperature * ops(q).logsumexp(q / temperature, axis=-1)  # [B]


def munchausen_reward(r_t: Any, log_pi_tm1: Any, temperature: float, scale: float = 0.9, floor: float = -1.0) -> Any:
    """r_t + scale · max(temperature · log π(a_tm1), floor)."""
    xp = ops(r_t)
    return r_t + scale * xp.clip(temperature * log_pi_tm1, floor, 0.0)  # [B]


def transformed_n_step_q_error(
    q_tm1: Any, a_tm1: Any, r_t: Any, discount_t: Any, q_t: Any, a_t: Any, n: int, epsilon: float = 1e-3
) -> Any:
    """h(n-step return of h⁻¹(q_t[a_t])) − q_tm1[a_tm1], for a sequence: the values are rescaled, the rewards not."""
    xp = ops(q_tm1)
    v_t = unscale_value(xp.take_along(q_t, a_t), epsilon)  # [T, B]
    target = xp.stop_gradient(rescale_value(n_step_returns(r_t, discount_t, v_t, n), epsilon))  # [T, B]
    return target - xp.take_along(q_tm1, a_tm1)  # [T, B]
