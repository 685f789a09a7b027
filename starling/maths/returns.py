"""Returns and advantages of sequences.

Time leads: rewards, discounts and values are [T, B] (or [T], or [T, ...]). Step t goes from one observation to the
next: ``r_t`` and ``discount_t`` are what it gave, ``v_t`` the value of where it led. Termination is
``discount_t = 0``. Where an episode was cut short without terminating, ``cut_t`` is true: the step still bootstraps
from ``v_t``, but nothing flows back from the steps after it, which belong to another episode.
"""

from __future__ import annotations

from typing import Any

from starling.backends import ops

__all__ = ["discounted_returns", "gae", "kept", "lambda_returns", "linear_recurrence", "n_step_returns"]


def linear_recurrence(addend_t: Any, factor_t: Any, last: Any) -> Any:
    """y_t = addend_t + factor_t · y_{t+1}, with y_T = last: one compiled loop, whatever T."""
    xp = ops(addend_t)

    def step(y_t: Any, x: Any) -> Any:
        addend, factor = x
        y_tm1 = addend + factor * y_t  # [B]
        return y_tm1, y_tm1

    return xp.scan(step, last, (addend_t, factor_t), reverse=True)[1]  # [T, B]


def kept(like: Any, cut_t: Any) -> Any:
    """1 − cut_t in the dtype of ``like``: what still flows backwards through time."""
    return 1.0 - ops(like).astype(cut_t, like.dtype)


def discounted_returns(r_t: Any, discount_t: Any, v_last: Any = 0.0) -> Any:
    """G_t = r_t + discount_t · G_{t+1}, with G_T = v_last, the value of the last observation."""
    xp = ops(r_t)
    last = v_last + xp.zeros_like(r_t[0, ...])  # [B]
    return linear_recurrence(r_t, discount_t + xp.zeros_like(r_t), last)  # [T, B]


def lambda_returns(r_t: Any, discount_t: Any, v_t: Any, lambda_: Any, cut_t: Any = None) -> Any:
    """G_t = r_t + discount_t · ((1 − λ) · v_t + λ · G_{t+1}), with G_T = v_{T-1}, the value of the last observation.

    ``lambda_`` is a number or [T, B]; a cut step has λ = 0.
    """
    xp = ops(r_t)
    trace_t = lambda_ + xp.zeros_like(v_t)  # [T, B]
    if cut_t is not None:
        trace_t = trace_t * kept(v_t, cut_t)
    return linear_recurrence(r_t + discount_t * (1.0 - trace_t) * v_t, discount_t * trace_t, v_t[-1, ...])  # [T, B]


def n_step_returns(r_t: Any, discount_t: Any, v_t: Any, n: int, lambda_: Any = 1.0, cut_t: Any = None) -> Any:
    """G_t = r_t + discount_t · (r_{t+1} + … discount_{t+n-1} · v_{t+n-1}), fewer terms where the sequence ends.

    Below λ = 1 each inner term is mixed with the value: r + discount · ((1 − λ) · v + λ · …).
    """
    xp = ops(r_t)
    steps = r_t.shape[0]
    n = min(n, steps)
    trace_t = lambda_ + xp.zeros_like(v_t)  # [T, B]
    if cut_t is not None:
        trace_t = trace_t * kept(v_t, cut_t)
    # After the end: no reward, no discounting, and the last value again.
    v_after = xp.stack([v_t[-1, ...]] * n)  # [n, B]
    nothing, one = xp.zeros_like(v_after), xp.ones_like(v_after)

    def windows(x_t: Any, after: Any) -> Any:
        longer = xp.concat([x_t, after], axis=0)
        return xp.stack([longer[i : i + steps, ...] for i in range(n)])  # [n, T, B]: entry i is i steps ahead

    def step(target: Any, ahead: Any) -> Any:
        r, discount, trace, v = ahead
        return r + discount * ((1.0 - trace) * v + trace * target), None

    ahead = (windows(r_t, nothing), windows(discount_t, one), windows(trace_t, one), windows(v_t, v_after))
    bootstrap = xp.concat([v_t, v_after], axis=0)[n - 1 : n - 1 + steps, ...]  # [T, B]
    return xp.scan(step, bootstrap, ahead, reverse=True)[0]  # [T, B]


def gae(r_t: Any, discount_t: Any, values: Any, lambda_: Any, cut_t: Any = None, v_cut_t: Any = None) -> Any:
    """A_t = δ_t + discount_t · λ · A_{t+1}, with δ_t = r_t + discount_t · v_t − v_tm1.

    ``values`` is [T+1, B]: one value per observation, the last one after the last step. Where ``cut_t`` says the
    episode was cut and the next observation is already the first of another, ``v_cut_t`` [T, B] has the value of
    the observation it really ended with.
    """
    xp = ops(r_t)
    v_tm1, v_t = values[:-1, ...], values[1:, ...]  # [T, B]
    trace_t = discount_t * lambda_ + xp.zeros_like(r_t)
    if cut_t is not None:
        trace_t = trace_t * kept(r_t, cut_t)
        if v_cut_t is not None:
            v_t = xp.where(xp.astype(cut_t, xp.bool), v_cut_t, v_t)
    delta_t = r_t + discount_t * v_t - v_tm1  # [T, B]
    return linear_recurrence(delta_t, trace_t, xp.zeros_like(delta_t[0, ...]))  # [T, B]
