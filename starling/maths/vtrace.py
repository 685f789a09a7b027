"""V-trace: off-policy corrected values and advantages for actor-critic learners."""

from __future__ import annotations

from typing import Any, NamedTuple

from starling.backends import ops
from starling.maths.returns import kept, linear_recurrence

__all__ = ["VTrace", "vtrace"]


class VTrace(NamedTuple):
    """What V-trace gives; no gradient flows through any of it."""

    targets: Any  # [T, B] regression targets of v_tm1
    advantages: Any  # [T, B] already weighted by the clipped importance ratios
    q_estimates: Any  # [T, B] r_t + discount_t · the target of the next step


def vtrace(
    log_rho_tm1: Any,
    r_t: Any,
    discount_t: Any,
    v_tm1: Any,
    v_t: Any,
    lambda_: Any = 1.0,
    clip_rho: float = 1.0,
    clip_c: float = 1.0,
    clip_pg_rho: float = 1.0,
    cut_t: Any = None,
) -> VTrace:
    """vs_t − v_tm1 = ρ̄ · δ_t + discount_t · λ · c̄ · (vs_{t+1} − v_t), with δ_t = r_t + discount_t · v_t − v_tm1.

    ``log_rho_tm1`` is log π(a) − log μ(a) of the action taken, learner over behaviour; all arguments are [T, B].
    The advantage is min(ρ, clip_pg_rho) · (q − v_tm1), where q bootstraps from the next step's target, mixed with
    its value as ``lambda_`` says. Ratios are exponentiated once, after stopping the gradient.
    """
    xp = ops(r_t)
    v_tm1, v_t = xp.stop_gradient(v_tm1), xp.stop_gradient(v_t)
    rho = xp.exp(xp.stop_gradient(log_rho_tm1))  # [T, B]
    keep_t = lambda_ + xp.zeros_like(r_t)  # [T, B]
    if cut_t is not None:
        keep_t = keep_t * kept(r_t, cut_t)

    delta = xp.minimum(rho, clip_rho) * (r_t + discount_t * v_t - v_tm1)  # [T, B]
    trace = discount_t * keep_t * xp.minimum(rho, clip_c)
    zero = xp.zeros_like(delta[0, ...])
    correction = linear_recurrence(delta, trace, zero)  # [T, B]

    next_correction = xp.concat([correction[1:, ...], xp.expand_dims(zero, axis=0)], axis=0)
    q_estimates = r_t + discount_t * (v_t + keep_t * next_correction)
    advantages = xp.minimum(rho, clip_pg_rho) * (q_estimates - v_tm1)
    return VTrace(*(xp.stop_gradient(x) for x in (v_tm1 + correction, advantages, q_estimates)))
